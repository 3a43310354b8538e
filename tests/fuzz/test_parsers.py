"""Tests of tests/fuzz/parsers.py: a little of the fuzz, the same each time, and that it would tell."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.fuzz.parsers import PARSERS, cases
from tests.fuzz.parsers_source import DEEP, check_cell, check_source, check_suppressions, deep
from tests.fuzz.parsers_watch import Fault, Parser, WrongError, fault_of, one_line

COUNT = 20


@pytest.mark.parametrize("parser", PARSERS, ids=lambda p: p.name)
def test_only_data_and_a_parsers_own_errors_come_out(parser: Parser) -> None:
    found: list[Fault] = []
    assert cases(parser, COUNT, found.append, None) == COUNT
    assert [f"{f.kind} at {f.place}: {f.case!r:.300}\n{f.trace}" for f in found] == []


@pytest.mark.parametrize("kind", sorted(DEEP))
def test_what_is_deep_or_long_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    for check in (check_source, check_suppressions, check_cell):
        for size in (95, 1500):
            fault = fault_of(Parser(kind, st.nothing(), check), deep(kind, size).encode(), tmp_path)
            assert fault is None, fault.trace


def _raises(case: bytes, folder: Path) -> None:
    raise KeyError(case)


def _hangs(case: bytes, folder: Path) -> None:
    while True:
        time.sleep(0)


def _hoards(case: bytes, folder: Path) -> None:
    assert bytearray(200 << 20)


@pytest.mark.parametrize(
    ("check", "kind", "seconds"),
    [
        (_raises, "KeyError", 5),
        (_hangs, "TooSlowError", 0.2),
        (_hoards, "WrongError: too much memory", 5),
    ],
)
def test_a_fault_is_told(check: object, kind: str, seconds: float, tmp_path: Path) -> None:
    parser = Parser("wrong", st.nothing(), check)  # type: ignore[arg-type]
    fault = fault_of(parser, b"x", tmp_path, weigh="memory" in kind, seconds=seconds)
    assert fault is not None
    assert (fault.parser, fault.kind, fault.case) == ("wrong", kind, b"x")


@pytest.mark.parametrize("text", ["", "a\nb", "\x1b[31m", "x" * 5000])
def test_a_message_must_be_one_line_that_can_be_read(text: str) -> None:
    with pytest.raises(WrongError):
        one_line(text)


def test_the_same_cases_come_each_time() -> None:
    seen: list[list[object]] = [[], []]
    for each in seen:
        parser = Parser("same", PARSERS[0].cases, lambda case, folder, to=each: to.append(case))  # type: ignore[misc]
        cases(parser, 10, lambda fault: None, None)
    assert seen[0] == seen[1]
