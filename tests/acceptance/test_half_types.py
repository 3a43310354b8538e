"""Right code loses no more in a half type than it must, whatever it is spelled like.

    ALL_TYPES=1 python -m pytest tests/acceptance/test_half_types.py

Every correct fixture is run in float16, bfloat16 and float32, by ``--dtype``: none may be found
guilty of MHA902. Without ``ALL_TYPES`` a part of every kind of them is run, each in one of the three:
the fixtures come by their paths, so that neighbours are of a kind.
"""

from __future__ import annotations

import os

import pytest

from mha_lint.engine import check
from mha_lint.model.report import RunReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from tests.fixtures.conftest import ROOT, Fixture, fixtures

TYPES = ("float16", "bfloat16", "float32")
RIGHT = [f for f in fixtures() if not f.expected]
PART = 18
"""Without ``ALL_TYPES`` each type is run on one fixture of so many: another one for each type."""
LEAST = 0.6
"""The share of fixtures that run in another type, and are plain attention: the rest is not asked."""


def cases(dtype: str) -> list[Fixture]:
    """Return what is run in `dtype`: all, or its part."""
    if os.environ.get("ALL_TYPES"):
        return RIGHT
    return RIGHT[TYPES.index(dtype) * PART // len(TYPES) :: PART]


def run(chosen: list[Fixture], dtype: str) -> RunReport:
    """Judge `chosen` in `dtype`, for this one rule."""
    specs = [
        TargetSpec(
            text=f"{one.path}::{one.qualname}",
            path=str(one.path),
            qualname=one.qualname,
            build=one.build,
            call=one.call,
        )
        for one in chosen
    ]
    return check(specs, Settings(cwd=str(ROOT), dtype=dtype, select=("MHA902",)))


@pytest.mark.parametrize("dtype", TYPES)
def test_no_correct_fixture_loses_too_much(dtype: str) -> None:
    chosen = cases(dtype)
    report = run(chosen, dtype)
    assert report.crashes == ()
    assert [(f.span.path, f.span.line, f.message) for f in report.findings()] == []
    asked = [t for t in report.targets if any(c.dtype == dtype for c in t.crosscheck)]
    assert len(asked) >= LEAST * len(chosen)
