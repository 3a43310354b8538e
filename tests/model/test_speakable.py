"""Errors whose words are user code, which may raise, never end, or be too many."""

from __future__ import annotations

import traceback

import pytest

from mha_lint.model.speakable import LONGEST, speakable


class BrokenError(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class EndlessError(Exception):
    def __getattribute__(self, name: str) -> object:
        raise EndlessError


class NumberError(Exception):
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]


class LeavingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(0)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_what_can_be_shown_stays_as_it_is() -> None:
    for error in (ValueError("why"), KeyError("x"), SystemExit(3), OSError(2, "gone", "file")):
        assert speakable(error) is error


@pytest.mark.parametrize("kind", [BrokenError, EndlessError, NumberError, LeavingError])
def test_what_cannot_is_told_by_its_name(kind: type[Exception]) -> None:
    found = speakable(raised(kind()))
    assert type(found).__name__ == kind.__name__
    assert str(found) == "what it says cannot be shown"


def test_it_stays_what_it_was_and_where_it_was_raised() -> None:
    found = speakable(raised(BrokenError()))
    assert isinstance(found, ValueError)
    assert found.__traceback__ is not None
    shown = "".join(traceback.format_exception(found))
    assert "raise error" in shown
    assert shown.endswith("BrokenError: what it says cannot be shown\n")


def test_much_is_cut() -> None:
    found = speakable(raised(ValueError("x" * 10_000_000)))
    assert type(found) is ValueError
    assert str(found) == "x" * LONGEST + "..."
