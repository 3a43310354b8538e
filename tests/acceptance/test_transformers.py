"""Attention of the transformers package and torch's own modules: nothing false may be reported.

A module with one of its implementations, step by step or one call of torch's, is a pair. Every third
one is run, and with TRANSFORMERS_ALL=1 in the environment all are.
What departs from attention, and torch's own modules, are always run.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from mha_lint.model.finding import Severity
from mha_lint.model.report import Status
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from tests.acceptance import (
    hugging_face,
    hugging_face_audio,
    hugging_face_decoders,
    hugging_face_departures,
    hugging_face_encoders,
    hugging_face_more,
    hugging_face_pairs,
    hugging_face_vision,
    torch_own,
)
from tests.acceptance.cases import Case

FILES = (
    hugging_face,
    hugging_face_decoders,
    hugging_face_encoders,
    hugging_face_pairs,
    hugging_face_vision,
    hugging_face_audio,
    hugging_face_more,
)
HERE = Path(__file__).resolve().parent
ALL = os.environ.get("TRANSFORMERS_ALL", "") not in ("", "0")


def _named(file: ModuleType, case: Case, implementation: str) -> TargetSpec:
    return TargetSpec(
        text=f"{case.name or case.factory}-{implementation}",
        path=str(HERE / f"{file.__name__.rpartition('.')[2]}.py"),
        qualname=case.factory,
        build=case.build(implementation),
        call=case.call,
    )


def _parameters(*files: ModuleType, every: int = 1) -> list[object]:
    return [
        pytest.param(
            spec := _named(file, case, implementation),
            case,
            id=spec.text,
            marks=[pytest.mark.xfail(reason=case.todo, strict=True)] if case.todo else [],
        )
        for file in files
        for case, implementation in _pairs(file)[::every]
    ]


def _pairs(file: ModuleType) -> list[tuple[Case, str]]:
    return [(case, one) for case in file.CASES for one in case.implementations]


def _loud(spec: TargetSpec) -> dict[str, Severity]:
    """Check `spec` and return the codes reported above a note, each with its gravest severity."""
    from mha_lint.engine import check  # slow to import: not while tests are collected

    report = check([spec], Settings(cwd=str(HERE)))
    assert report.crashes == ()
    target = report.targets[0]
    assert target.status in {Status.CHECKED, Status.UNDECIDED}, f"{target.reason}\n{target.detail}"
    assert target.sites, "no attention was found"
    loud = sorted(target.findings, key=lambda finding: finding.severity.rank)
    return {f.code: f.severity for f in loud if f.severity is not Severity.NOTE}


@pytest.mark.parametrize(("spec", "case"), _parameters(*FILES, every=1 if ALL else 3))
def test_transformers_module(spec: TargetSpec, case: Case) -> None:
    pytest.importorskip("transformers")
    loud = _loud(spec)
    assert Severity.ERROR not in loud.values(), loud
    assert set(loud) == set(case.expect)


@pytest.mark.parametrize(("spec", "case"), _parameters(hugging_face_departures))
def test_transformers_module_that_departs(spec: TargetSpec, case: Case) -> None:
    pytest.importorskip("transformers")
    assert set(_loud(spec)) == set(case.expect)
    if case.settled_by:
        assert _loud(replace(spec, expect=(case.settled_by,))) == {}


def _own(case: torch_own.Case) -> TargetSpec:
    return TargetSpec(
        text=case.name,
        path=str(HERE / "torch_own.py"),
        qualname=case.build.split("(", 1)[0],
        build=case.build,
        call=case.call,
    )


@pytest.mark.parametrize("spec", [_own(case) for case in torch_own.CASES], ids=lambda s: s.text)
def test_torch_module(spec: TargetSpec) -> None:
    assert _loud(spec) == {}


def test_names_are_unique() -> None:
    files = (*FILES, hugging_face_departures)
    names = [(case.name or case.factory, one) for file in files for case, one in _pairs(file)]
    assert len(set(names)) == len(names)
