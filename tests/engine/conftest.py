"""Write files, run the engine on targets in them, look at the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

from mha_lint.engine import check
from mha_lint.model.report import NotChecked, RunReport, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.targets.resolve import parse_target
from tests.facts.conftest import HEADER, PLAIN, edited

BUILD, CALL = "MHA(24, 4)", "torch.randn(2, 5, 24)"


class Check(Protocol):
    def __call__(
        self,
        *targets: str,
        files: Mapping[str, str] | None = None,
        build: str | None = None,
        call: str | None = None,
        expect: tuple[str, ...] = (),
        **settings: Any,
    ) -> RunReport: ...


class Edit(Protocol):
    def __call__(self, *edits: tuple[str, str], text: str = PLAIN) -> TargetReport: ...


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return tmp_path


def spec_of(text: str, cwd: Path, **stated: Any) -> TargetSpec | NotChecked:
    found = parse_target(text, cwd=str(cwd))
    return dataclasses.replace(found, **stated) if isinstance(found, TargetSpec) else found


@pytest.fixture
def checked(folder: Path) -> Check:
    """Check targets in `files` (their common imports are put in front)."""

    def run(
        *targets: str,
        files: Mapping[str, str] | None = None,
        build: str | None = None,
        call: str | None = None,
        expect: tuple[str, ...] = (),
        **settings: Any,
    ) -> RunReport:
        for name, text in (files or {}).items():
            (folder / name).write_text(HEADER + text)
        specs = [spec_of(t, folder, build=build, call=call, expect=expect) for t in targets]
        return check(specs, Settings(cwd=str(folder), **settings))

    return run


@pytest.fixture
def judged(checked: Check) -> Edit:
    """Check the right module with edits, built and called as stated."""

    def run(*edits: tuple[str, str], text: str = PLAIN) -> TargetReport:
        files = {"attention.py": edited(text, *edits)}
        report = checked("attention.py::MHA", files=files, build=BUILD, call=CALL)
        assert report.crashes == ()
        (target,) = report.targets
        return target

    return run


def line_of(text: str, part: str) -> int:
    """Return the line of `part` in a file that holds `text` behind the common imports."""
    (found,) = [n for n, line in enumerate((HEADER + text).splitlines(), 1) if part in line]
    return found
