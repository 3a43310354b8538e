"""Attention of the transformers package and torch's own modules: nothing may be reported on it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from mha_lint.model.finding import Severity
from mha_lint.model.report import RunReport, Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from tests.acceptance import hugging_face, torch_own

HERE = Path(__file__).resolve().parent
TRANSFORMERS = [
    (f"{case.factory}-{implementation}", case.factory, case.build(implementation), case.call)
    for case in hugging_face.CASES
    for implementation in case.implementations
]
TORCH = [
    (case.name, case.build.split("(", 1)[0], case.build, case.call) for case in torch_own.CASES
]


def _check(file: str, cases: list[tuple[str, str, str, str]]) -> RunReport:
    from mha_lint.engine import check  # imports torch, which collecting these tests need not

    path = str(HERE / file)
    specs = [
        TargetSpec(text=name, path=path, qualname=qualname, build=build, call=call)
        for name, qualname, build, call in cases
    ]
    return check(specs, Settings(cwd=str(HERE)))


@pytest.fixture(scope="module")
def transformers_report() -> dict[str, TargetReport]:
    """Return the targets of one run over all transformers modules, by name."""
    pytest.importorskip("transformers")
    report = _check("hugging_face.py", TRANSFORMERS)
    assert report.crashes == ()
    names = [name for name, *_ in TRANSFORMERS]
    return dict(zip(names, report.targets, strict=True))


@pytest.fixture(scope="module")
def torch_report() -> dict[str, TargetReport]:
    """Return the targets of one run over all of torch's modules, by name."""
    report = _check("torch_own.py", TORCH)
    assert report.crashes == ()
    return dict(zip([name for name, *_ in TORCH], report.targets, strict=True))


def _assert_clean(target: TargetReport) -> None:
    assert target.status in {Status.CHECKED, Status.UNDECIDED}, f"{target.reason}\n{target.detail}"
    assert target.sites, "no attention was found"
    loud = [f for f in target.findings if f.severity is not Severity.NOTE]
    assert not loud, [f"{f.code} {f.span}: {f.message}" for f in loud]


@pytest.mark.parametrize("name", [name for name, *_ in TRANSFORMERS])
def test_transformers_module(name: str, transformers_report: dict[str, TargetReport]) -> None:
    _assert_clean(transformers_report[name])


@pytest.mark.parametrize("name", [name for name, *_ in TORCH])
def test_torch_module(name: str, torch_report: dict[str, TargetReport]) -> None:
    _assert_clean(torch_report[name])


def test_names_are_unique() -> None:
    names = [name for name, *_ in chain(TRANSFORMERS, TORCH)]
    assert len(set(names)) == len(names)
