"""What a call leaves behind: found by a second call, unless nothing can be left."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

Known = Callable[[Any], Any]

SETUP = "        self.h = num_heads\n"
SHAPE = "        B, T, C = x.shape\n"


def keeping(measured: Measure, setup: str, *lines: str, method: str = "") -> Case:
    body = "".join(f"        {line}\n" for line in lines)
    text = PLAIN.replace(SETUP, f"{SETUP}        {setup}\n").replace(SHAPE, SHAPE + body)
    return measured(text=text + method)


@pytest.mark.parametrize(
    ("setup", "lines", "name"),
    [
        ("self.at = 0", ("x = x + self.at", "self.at += T"), "at"),
        ("self.mem = None", ("x = x if self.mem is None else x + self.mem", "self.mem = x"), "mem"),
        (
            'self.register_buffer("mean", torch.zeros(d_model))',
            ("self.mean.mul_(0.9).add_(x.mean((0, 1)))", "x = x - self.mean"),
            "mean",
        ),
        ("self.kept = {}", ('x = x + self.kept.get("x", 0)', 'self.kept["x"] = x'), "kept"),
    ],
)
def test_what_is_kept(
    measured: Measure, known: Known, setup: str, lines: tuple[str, str], name: str
) -> None:
    case = keeping(measured, setup, *lines)
    found = known(case.facts.state)
    assert (found.differs, found.name, found.documented) == (True, name, "")
    written = next(line for line in lines if f"self.{name}" in line and ("=" in line or "_(" in line) and not line.startswith("x ="))  # fmt: skip
    assert found.span.line == case.line(written)


@pytest.mark.parametrize(
    ("setup", "lines"),
    [
        ("self.calls = 0", ("self.calls += 1",)),
        ("self.last = None", ("self.last = x.mean()",)),
        ("self.mask = None", ("self.mask = torch.ones(T, T)", "x = x * self.mask.mean()")),
        (
            'self.register_buffer("mean", torch.zeros(d_model))',
            ("if self.training: self.mean.add_(x.mean((0, 1)))", "x = x - self.mean"),
        ),
    ],
)
def test_what_is_kept_and_changes_nothing(
    measured: Measure, known: Known, setup: str, lines: tuple[str, ...]
) -> None:
    fact = keeping(measured, setup, *lines).facts.state
    assert known(fact).differs is False
    assert fact.evidence == (  # type: ignore[union-attr]
        "a call on other inputs leaves the result of the next one alone"
    )


KEEP = ("x = x if self.mem is None else x + self.mem", "self.mem = x")


def test_a_method_that_resets_it(measured: Measure, known: Known) -> None:
    reset = "\n    def forget(self):\n        self.mem = None\n"
    case = keeping(measured, "self.mem = None", *KEEP, method=reset)
    assert known(case.facts.state).documented == "forget()"


def test_a_method_that_the_call_uses_is_no_reset(measured: Measure, known: Known) -> None:
    helper = "\n    def keep(self, x):\n        self.mem = x\n"
    case = keeping(measured, "self.mem = None", KEEP[0], "self.keep(x)", method=helper)
    found = known(case.facts.state)
    assert found.documented == ""
    assert found.span.line == case.line("        self.mem = x")


def test_a_switch(measured: Measure, known: Known) -> None:
    case = keeping(measured, "self.mem, self.streaming = None, True", *KEEP)
    assert known(case.facts.state).documented == "streaming"


def test_equal_keys_that_come_twice_do_not_hide_it(measured: Measure, known: Known) -> None:
    text = PLAIN.replace(SETUP, f"{SETUP}        self.past = None\n").replace(
        "        scores = q @",
        "        if self.past is not None:\n"
        "            k, v = torch.cat([self.past[0], k], 2), torch.cat([self.past[1], v], 2)\n"
        "        self.past = k, v\n"
        "        scores = q @",
    )
    assert known(measured(text=text).facts.state).differs
