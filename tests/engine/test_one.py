"""One target, whatever it does to the process or raises: a report that says so."""

from __future__ import annotations

import builtins
import math

import pytest

from mha_lint.engine.one import judge_one
from mha_lint.engine.restore import restored
from mha_lint.model.report import Status
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import LoadedRule

SPEC = TargetSpec("a.py::A", path="a.py", qualname="A")
SETTINGS = Settings(cwd="/")


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_what_was_changed_is_named_and_put_back() -> None:
    real, found = math.exp, list[str]()
    with restored(found):
        math.exp = abs  # type: ignore[assignment]
    assert math.exp is real
    assert found == ["math.exp"]


def test_a_failure_behind_a_change_is_no_bug_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(_: list[LoadedRule]) -> None:
        monkeypatch.setattr(builtins, "sorted", None)
        raise TypeError("'NoneType' object is not callable")

    report, crashes = judge_one(SPEC, work, SETTINGS, ())  # type: ignore[arg-type]
    assert (report.status, crashes) == (Status.FAILED, [])
    assert report.reason == (
        "it changed or removed builtins.sorted; judging it then failed: "
        "TypeError: 'NoneType' object is not callable"
    )


def test_a_bug_of_ours_is_one_even_if_it_cannot_be_shown() -> None:
    def work(_: list[LoadedRule]) -> None:
        raise BrokenError

    report, (crash,) = judge_one(SPEC, work, SETTINGS, ())  # type: ignore[arg-type]
    assert crash.error == "BrokenError: what it says cannot be shown"
    assert report.reason == f"mha-lint itself failed on this target: {crash.error}"
