"""The merge of heads whose queries stand beside each other as rows, before one shared key head."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.facts import LayoutKind

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

FLAT = """\
import torch
from torch import nn


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(12, 12), nn.Linear(12, 4), nn.Linear(12, 4)
        self.o = nn.Linear(12, 12)

    def forward(self, x):
        B, T, C = x.shape
        q = SPLIT
        s = q @ self.k(x).mT / 2
        MASK
        y = s.softmax(-1) @ self.v(x)
        return self.o(MERGE)
"""
TIME_FIRST = "self.q(x).view(B, T * 3, 4)", "y.view(B, T, C)"
HEADS_FIRST = (
    "self.q(x).view(B, T, 3, 4).transpose(1, 2).reshape(B, 3 * T, 4)",
    "y.view(B, 3, T, 4).transpose(1, 2).reshape(B, T, C)",
)
TRIANGLE = "s = s.masked_fill(torch.ones(T, T).triu(1).bool().repeat_interleave(3, 0), -1e30)"


def flat(measured: Measure, split: str, merge: str, mask: str = "") -> Any:
    text = FLAT.replace("SPLIT", split).replace("MERGE", merge).replace("MASK", mask or "pass")
    return measured(text=text, build="Flat()", call="torch.randn(2, 5, 12)").site


@pytest.mark.parametrize(("split", "merge"), [TIME_FIRST, HEADS_FIRST])
def test_rows_of_positions_and_heads(
    split: str, merge: str, measured: Measure, known: Known
) -> None:
    site = flat(measured, split, merge)
    assert known(site.split_q).kind is LayoutKind.RIGHT
    assert known(site.merge).kind is LayoutKind.RIGHT


@pytest.mark.parametrize(
    ("split", "merge"), [(TIME_FIRST[0], HEADS_FIRST[1]), (HEADS_FIRST[0], TIME_FIRST[1])]
)
def test_rows_merged_in_another_order(
    split: str, merge: str, measured: Measure, known: Known
) -> None:
    site = flat(measured, split, merge)
    assert known(site.split_q).kind is LayoutKind.RIGHT
    found = known(site.merge)
    assert (found.kind, found.operand) == (LayoutKind.SCRAMBLED, "context")


def test_masks_over_such_rows_are_not_read(measured: Measure, why: Why) -> None:
    site = flat(measured, *TIME_FIRST, TRIANGLE)
    assert why(site.split_q) == (
        "Unknown",
        "rows of q are pairs of position and head, and masks are not read there",
    )


def test_rows_of_a_view_alone_stay_wrong(measured: Measure, known: Known) -> None:
    text = FLAT.replace("SPLIT", "self.q(x).view(B, 3, T, 4)").replace("MASK", "pass")
    text = text.replace("self.k(x)", "self.k(x)[:, None]").replace(
        "self.v(x)", "self.v(x)[:, None]"
    )
    text = text.replace("MERGE", "y.transpose(1, 2).reshape(B, T, C)")
    site = measured(text=text, build="Flat()", call="torch.randn(2, 5, 12)").site
    assert known(site.split_q).kind is LayoutKind.SCRAMBLED
