"""Learned maps in a row: which of them one map could replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

TEXT = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.one, self.two = FIRST, SECOND
        self.kv, self.out = nn.Linear(d_model, 2 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        q = F.pad(x.transpose(1, 2), (PAD, 0))
        q = self.two(self.one(q)).transpose(1, 2)
        k, v = self.kv(x).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in (q, k, v))
        w = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1)
        return self.out((w @ v).transpose(1, 2).flatten(2))
"""
POINT = "nn.Conv1d(d_model, d_model, 1)"
DEPTH = "nn.Conv1d(d_model, d_model, 3, groups=d_model)"
GROUPED = "nn.Conv1d(d_model, d_model, 3, groups=num_heads)"
FULL = "nn.Conv1d(d_model, d_model, 3)"


def stacked(measured: Measure, first: str, second: str) -> Any:
    pad = 2 * sum("3" in one for one in (first, second))
    text = TEXT.replace("FIRST", first).replace("SECOND", second).replace("PAD", str(pad))
    return measured(text=text).site.stacked


@pytest.mark.parametrize(
    ("first", "second"),
    [(POINT, DEPTH), (DEPTH, POINT), (DEPTH, GROUPED)],
)
def test_convolutions_that_save_weights(
    first: str, second: str, measured: Measure, known: Known
) -> None:
    assert known(stacked(measured, first, second)) == ()


@pytest.mark.parametrize(("first", "second"), [(POINT, POINT), (POINT, FULL), (FULL, POINT)])
def test_convolutions_of_which_one_is_enough(
    first: str, second: str, measured: Measure, known: Known
) -> None:
    (found,) = known(stacked(measured, first, second))
    assert (found.first, found.second) == ("one.weight", "two.weight")
