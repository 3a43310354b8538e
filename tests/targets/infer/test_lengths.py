"""Lengths that errors tell indirectly."""

from __future__ import annotations

from typing import Any

from torch import nn

from mha_lint.targets.infer.errors import read_failure
from mha_lint.targets.infer.guesses import InputGuess
from mha_lint.targets.infer.inputs import Inputs
from mha_lint.targets.infer.lengths import by_elements, by_offset, repeated
from mha_lint.targets.infer.scheme import SCHEMES
from mha_lint.targets.infer.state import State


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(24, 24)

    def forward(self, x: Any) -> Any:
        return self.map(x)


STATE = State(SCHEMES[0], inputs=(("x", InputGuess("float", ("B", "T", "D"))),))


def axes_after(message: str) -> list[Any]:
    inputs = Inputs(Plain(), SCHEMES[0])
    failure = read_failure(RuntimeError(message))
    edits = sorted(by_elements(STATE, failure, inputs), key=lambda edit: edit[0])
    return [dict(s.inputs or ())["x"].axes for _, s in edits if s.scheme == STATE.scheme]


def test_a_reshape_to_a_grid_tells_the_number_of_rows() -> None:
    message = "shape '[3, 14, 14, 24]' is invalid for input of size 504"
    assert axes_after(message)[0] == ("B", 196, "D")


def test_a_reshape_behind_a_row_that_was_taken_off() -> None:
    message = "shape '[3, 7, 24]' is invalid for input of size 432"
    assert axes_after(message)[0] == ("B", 8, "D")


def test_where_the_batch_is_left_over_each_sample_is_whole() -> None:
    message = "shape '[-1, 1152]' is invalid for input of size 504"
    assert axes_after(message)[0] == ("B", 48, "D")


def test_positions_in_front_are_taken_off_the_length() -> None:
    failure = read_failure(RuntimeError("tensor a (8) must match the size of tensor b (25)"))
    lengths = [s.scheme.length for _, s in by_offset(STATE, failure)]
    assert lengths == [24]


def test_what_came_out_a_whole_factor_longer_is_given_once() -> None:
    failure = read_failure(RuntimeError("Expected size 9 but got size 63"))
    found = [
        dict(s.inputs or ())["x"].axes
        for _, s in repeated(STATE, failure, Inputs(Plain(), SCHEMES[0]))
    ]
    assert found == [("B", 1, "D")]
