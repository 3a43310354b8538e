"""Where elements land may be decided by the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Why = Callable[[Any], tuple[str, str]]
MERGED = "context.transpose(1, 2).reshape(B, T, C)"


@pytest.mark.parametrize("order", ["x.sum(-1).argsort(-1)", "x[..., 0].topk(T).indices"])
def test_a_sorted_merge_is_left_open(order: str, measured: Measure, why: Why) -> None:
    at = f"{order}[:, None, :, None].expand(-1, self.h, -1, self.d_k)"
    wrong = f"context.gather(2, {at}).reshape(B, T, C)"
    assert why(measured((MERGED, wrong)).site.merge) == (
        "Unknown",
        "where the context goes depends on the data itself (a selection of queries)",
    )


def test_a_fixed_order_is_judged(measured: Measure) -> None:
    case = measured((MERGED, "context[:, :, torch.arange(T).flip(0)].reshape(B, T, C)"))
    assert case.site.merge.value.kind == "scrambled"
