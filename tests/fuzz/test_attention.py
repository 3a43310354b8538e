"""Random attention modules, for a short time and the same ones each time; see run.py for long runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.attention import cases, generator_error, judged
from tests.fuzz.choices import Choices
from tests.fuzz.compose import Case, compose

CASES = 60
SECONDS = 20
_ENDS: list[float] = []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    _ENDS[:] = [time.monotonic() + SECONDS]
    yield tmp_path_factory.mktemp("cases")


@settings(
    max_examples=CASES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(case=cases)
def test_right_modules_pass_and_faults_are_named(folder: Path, case: Case) -> None:
    if time.monotonic() > _ENDS[0]:
        return
    assert generator_error(case) is None, case.source
    failure = judged(case, folder)
    assert failure is None, f"{failure}\n{case.source}"


@settings(max_examples=150, derandomize=True, database=None, deadline=None)
@given(case=cases)
def test_modules_are_what_their_plan_says(case: Case) -> None:
    assert generator_error(case) is None, case.source


def test_a_draw_can_be_repeated_and_made_plainer() -> None:
    first = Choices.random(7)
    case = compose(first)
    assert compose(Choices.random(7)).text == case.text
    plain = compose(Choices.random(7, dict.fromkeys(first.made, 0)))
    assert plain.fault is None and plain.plan.form == "open" and plain.plan.heads == 4
