"""Which of queries and keys is rotated wrongly, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.positions.rotary import measure_rotary
from mha_lint.model.facts import Known
from tests.facts.positions.test_rotary import BOTH, BY_STEP, STEP

if TYPE_CHECKING:
    from mha_lint.model.position_facts import UnevenTurns
    from tests.facts.conftest import Case

Make = Callable[..., "Case"]


def uneven_of(case: Case) -> UnevenTurns:
    fact = measure_rotary(case.bench, case.bench.sites[0])
    assert isinstance(fact, Known) and fact.value.uneven is not None, fact
    return fact.value.uneven


@pytest.mark.parametrize(
    ("lines", "turned", "place", "other"),
    [
        (["q = self.rotate(q)", "k = self.rotate(k, 1, 1)"], "k", "self.rotate(k, 1, 1)", "self.rotate(q)"),
        (["k = self.rotate(k)", "q = self.rotate(q, 1, 2)"], "q", "self.rotate(q, 1, 2)", "self.rotate(k)"),
        (["q = self.rotate(q, 1, 2)", "k = self.rotate(k)"], "q", "self.rotate(q, 1, 2)", "self.rotate(k)"),
        (["q = self.rotate(q)", "k = self.rotate(k, -1)"], "k", "self.rotate(k, -1)", "self.rotate(q)"),
        (["q, k = self.rotate(q), self.rotate(k)", "q = self.rotate(q) "], "q", "self.rotate(q)", "self.rotate(k)"),
    ],
    ids=["k ahead", "q ahead", "q ahead, first", "k backwards", "q twice"],
)  # fmt: skip
def test_the_odd_one(rotary: Make, lines: list[str], turned: str, place: str, other: str) -> None:
    code = "".join(f"        {line}\n" for line in lines)
    case = rotary(BY_STEP, STEP, (BOTH, code))
    found = uneven_of(case)
    assert found.turned == turned
    assert case.marked(found.span) == place
    assert case.marked(found.other_span) == other
    assert found.span is not None
    written = case.text.splitlines()[found.span.line - 1]
    assert written.strip() in {line.strip() for line in lines}


def test_the_sentences(rotary: Make) -> None:
    uses = ("self.rotate(q), self.rotate(k)", "self.rotate(q), self.rotate(k, 1, 2)")
    assert uneven_of(rotary(BY_STEP, STEP, uses)).example == (
        "the key of position t is turned as the query of position t + 2"
    )
    uses = ("self.rotate(q), self.rotate(k)", "self.rotate(q, 1, 1), self.rotate(k)")
    assert uneven_of(rotary(BY_STEP, STEP, uses)).example == (
        "the query of position t is turned as the key of position t + 1"
    )
    uses = ("self.rotate(q), self.rotate(k)", "self.rotate(q), k")
    assert uneven_of(rotary(BY_STEP, STEP, uses)).example == (
        "the queries are turned by position (up to 4), and equal content makes equal keys at all"
        " positions"
    )
