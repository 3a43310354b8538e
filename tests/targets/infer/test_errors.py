"""What errors tell: sizes, the tests that led there, and how far a call came."""

from __future__ import annotations

from typing import Any

import torch

from mha_lint.targets.infer.errors import largest_number, reached, read_failure
from mha_lint.targets.infer.scheme import SCHEMES
from mha_lint.targets.infer.state import State


def branches(flag: bool, rows: int) -> Any:
    if flag:
        torch.zeros(3).view(2)
    torch._assert(rows == 1 + 4 * 5, "one row more")  # type: ignore[no-untyped-call]
    return rows


def raised(*arguments: Any) -> BaseException:
    try:
        branches(*arguments)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_test_that_led_to_an_error() -> None:
    assert read_failure(raised(True, 1), __file__).conditions == ["flag"]


def test_the_sides_of_an_assertion_that_torch_raises() -> None:
    assert read_failure(raised(False, 20), __file__).numbers[:2] == [20, 21]


def test_a_later_line_is_further() -> None:
    assert reached(raised(True, 1), __file__) < reached(raised(False, 20), __file__)


def test_where_something_is_is_no_size() -> None:
    error = RuntimeError("The size of tensor a (72) must match (24) at non-singleton dimension 2")
    assert read_failure(error).numbers == [72, 24]


def test_parts_of_a_split_tell_the_whole() -> None:
    error = RuntimeError(
        "split_sizes to sum exactly to 8 (size at dimension -1): split_sizes=[6, 6]"
    )
    assert read_failure(error).numbers == [8, 12, 6]


def test_going_on_costs_less_the_further_a_call_came() -> None:
    state = State(SCHEMES[0], reached=(10, 5), largest=24)
    assert state.progress((11,), 24) == -0.4
    assert state.progress((10, 5), 24) == 0.0
    assert state.progress((10, 5), 100) == 0.4
    assert state.progress((9,), 24) == 0.3
    assert State(SCHEMES[0]).progress((9,), 24) == 0.0


def test_the_largest_size_of_a_message() -> None:
    assert largest_number("sizes 7 and 63 at dimension 99") == 63
    assert largest_number("no number") == 0
