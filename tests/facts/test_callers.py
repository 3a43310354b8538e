"""One helper that serves two sites, of which one is scaled otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

TWO = """\
class Two(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.root = num_heads, math.sqrt(d_model // num_heads)
        self.first, self.second = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, 3 * d_model)
        self.out1, self.out2 = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def attend(self, y, divisor):
        q, k, v = y.unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT
        scores = scores / divisor
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def forward(self, x):
        x = x + self.out1(self.attend(self.first(x), self.root))
        return x + self.out2(self.attend(self.second(x), self.root))
"""
BUILD = "Two(24, 4)"
WRONG = ("self.attend(self.second(x), self.root)", "self.attend(self.second(x), 6)")


def places(measured: Measure, *edits: tuple[str, str]) -> list[list[str]]:
    case = measured(*edits, text=TWO, build=BUILD)
    return [[case.marked(s.info.spans[p]) for p in ("scores", "scale")] for s in case.facts.sites]


def test_the_call_that_scales_otherwise_is_the_place(measured: Measure) -> None:
    in_helper = ["q @ k.mT", "scores / divisor"]
    assert places(measured) == [in_helper, in_helper]
    assert places(measured, WRONG) == [in_helper, ["self.attend(self.second(x), 6)"] * 2]


def test_a_helper_that_is_wrong_for_all_is_the_place_itself(measured: Measure) -> None:
    in_helper = ["q @ k.mT", "scores / 6"]
    assert places(measured, ("scores / divisor", "scores / 6")) == [in_helper, in_helper]
