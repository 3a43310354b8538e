"""What a mask draws, told from the pairs that it leaves visible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.facts.causal.patterns import Pattern, ahead, behind, patterns_of
from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

SOFTMAX = "        weights = scores.softmax(dim=-1)\n"


def masked(measured: Measure, keep: str, fill: str = 'float("-inf")') -> Case:
    edit = f"        keep = {keep}\n        scores = scores.masked_fill(~keep, {fill})\n{SOFTMAX}"
    return measured((SOFTMAX, edit))


def drawn(case: Case) -> set[Pattern]:
    (site,) = case.bench.sites
    return set(patterns_of(case.bench, site))


ONES = "torch.ones(T, T).bool()"
PLACES = "torch.arange(T)[:, None] - torch.arange(T)"


@pytest.mark.parametrize(
    ("keep", "pattern"),
    [
        (f"{ONES}.tril()", Pattern.CAUSAL),
        (f"{ONES}.tril() & ~{ONES}.tril(-3)", Pattern.CAUSAL),
        (f"(({PLACES}) >= 0) & (({PLACES}) % 2 == 0)", Pattern.CAUSAL),
        (f"{ONES}.tril(-1)", Pattern.STRICT),
        (f"{ONES}.tril(1)", Pattern.AHEAD),
        (f"{ONES}.tril(2)", Pattern.AHEAD),
        (f"{ONES}.triu()", Pattern.REVERSE),
        (ONES, Pattern.OPEN),
        (f"({PLACES}).abs() < 2", Pattern.AHEAD),
        ("torch.arange(T)[:, None] // 2 >= torch.arange(T) // 2", Pattern.OTHER),
        (f"{ONES}.tril() | (torch.arange(T) < 2)", Pattern.OTHER),
        ("torch.eye(T).bool()", Pattern.OTHER),
    ],
)
def test_a_pattern(measured: Measure, keep: str, pattern: Pattern) -> None:
    assert drawn(masked(measured, keep)) == {pattern}


def test_a_weak_fill_still_tells_later_keys_apart(measured: Measure) -> None:
    assert drawn(masked(measured, f"{ONES}.tril()", "-20.0")) == {Pattern.OTHER}
    assert drawn(masked(measured, f"{ONES}.tril()", "1e-9")) == {Pattern.OTHER}


def test_a_bias_is_no_mask(measured: Measure) -> None:
    bias = f"        scores = scores - ({PLACES}).abs() / 4\n{SOFTMAX}"
    assert drawn(measured((SOFTMAX, bias))) == {Pattern.OPEN}


def test_heads_may_differ(measured: Measure) -> None:
    both = f"torch.stack([{ONES}.tril(), {ONES}.triu()] * 2)"
    assert drawn(masked(measured, both)) == {Pattern.CAUSAL, Pattern.REVERSE}


def test_no_square_has_no_pattern(measured: Measure) -> None:
    cut = PLAIN.replace("q = self.q_proj(x)", "q = self.q_proj(x[:, -2:])").replace(
        "view(B, T, self.h, self.d_k).transpose(1, 2)\n        k",
        "view(B, 2, self.h, self.d_k).transpose(1, 2)\n        k",
    )
    case = measured(text=cut.replace("reshape(B, T, C)", "reshape(B, 2, C)"))
    assert drawn(case) == set()


@pytest.mark.parametrize(("diagonal", "count"), [(0, 0), (1, 1), (3, 3), (5, 5), (-1, None)])
def test_how_many_later_keys_are_seen(diagonal: int, count: int | None) -> None:
    assert ahead(torch.ones(6, 6).tril(diagonal).bool()) == count


def test_another_number_for_each_query_is_none() -> None:
    block = torch.arange(6) // 2
    assert ahead(block[:, None] >= block) is None


def test_how_many_earlier_keys_are_seen() -> None:
    band = torch.ones(6, 6).tril(1).triu(-2).bool()
    assert (ahead(band), behind(band)) == (1, 2)
    assert behind(torch.ones(6, 6).tril().bool()) == 5
    assert behind(torch.eye(6).bool()) == 0
