"""Queries that are pooled: how they were laid out before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.facts import LayoutKind

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

SPLIT = "q = self.q_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)"
POOLS = [
    ".view(B, self.h, 2, T // 2, self.d_k).amax(2)",
    ".unflatten(2, (T // 2, 2)).max(dim=3).values",
    ".unflatten(2, (2, -1)).max(2)[0]",
]
MERGE = ("merged = context.transpose(1, 2).reshape(B, T, C)",
         "merged = context.transpose(1, 2).reshape(B, T // 2, C)")  # fmt: skip
CALL = "torch.randn(2, 10, 24)"


@pytest.mark.parametrize("pool", POOLS)
def test_the_largest_of_several_queries(pool: str, measured: Measure, known: Known) -> None:
    case = measured((SPLIT, SPLIT + pool), MERGE, call=CALL)
    found = known(case.site.split_q)
    assert (found.kind, found.rows) == (LayoutKind.RIGHT, ("positions",))
    assert found.features == ("channels",)


@pytest.mark.parametrize("pool", POOLS)
def test_a_wrong_split_before_it(pool: str, measured: Measure, known: Known) -> None:
    wrong = "q = self.q_proj(x).view(B, self.h, T, self.d_k)"
    case = measured((SPLIT, wrong + pool), MERGE, call=CALL)
    found = known(case.site.split_q)
    assert (found.kind, found.operand) == (LayoutKind.SCRAMBLED, "q")
    assert found.span is not None
    assert found.span.line == case.line(wrong)


def test_what_is_picked_by_an_order_is_left_open(measured: Measure, why: Why) -> None:
    sort = ".sort(dim=2).values[:, :, ::2]"
    case = measured((SPLIT, SPLIT + sort), MERGE, call=CALL)
    kind, text = why(case.site.split_q)
    assert (kind, "depends on the data itself" in text) == ("Unknown", True)
