"""A command line whose engine is a recorder: what was asked, and a report to give back."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mha_lint.cli import check, engine_access, inspect
from mha_lint.cli.main import run
from mha_lint.cli.progress import Report
from mha_lint.model.finding import Finding, Severity
from mha_lint.model.report import NotChecked, RunReport, Status, TargetReport
from mha_lint.model.settings import Running, Settings
from mha_lint.model.source import Span
from mha_lint.model.target import TargetSpec


@dataclass
class FakeEngine:
    """Stands in for `mha_lint.engine`."""

    report: RunReport
    specs: Sequence[TargetSpec | NotChecked] = ()
    settings: Settings | None = None
    raises: BaseException | None = None
    prints: list[str] = field(default_factory=list)

    def check(
        self,
        specs: Sequence[TargetSpec | NotChecked],
        settings: Settings,
        progress: Report | None,
    ) -> RunReport:
        self.specs, self.settings = specs, settings
        for text in self.prints:
            sys.stdout.write(text)
        if self.raises is not None:
            raise self.raises
        return self.report

    def inspect(self, specs: Sequence[TargetSpec | NotChecked], settings: Settings) -> RunReport:
        return self.check(specs, settings, None)

    @property
    def asked(self) -> Settings:
        assert self.settings is not None
        return self.settings

    @property
    def spec(self) -> TargetSpec:
        (spec,) = self.specs
        assert isinstance(spec, TargetSpec)
        return spec


@dataclass
class Outcome:
    code: int
    out: str
    err: str


class CommandLine:
    """Runs ``mha-lint`` in this process."""

    def __init__(self, engine: FakeEngine, capfd: pytest.CaptureFixture[str]) -> None:
        self.engine = engine
        self._capfd = capfd

    def __call__(self, *arguments: str) -> Outcome:
        self._capfd.readouterr()
        code = run(arguments)
        out, err = self._capfd.readouterr()
        return Outcome(code, out, err)


def target(
    name: str, *findings: Finding, status: Status = Status.CHECKED, reason: str | None = None
) -> TargetReport:
    return TargetReport(f"a.py::{name}", "a.py", name, 1, status, reason, findings=findings)


@pytest.fixture
def warning() -> Finding:
    return Finding("MHA201", "missing-scale", Severity.WARNING, "No scale.", Span("a.py", 3, 5))


@pytest.fixture
def engine(warning: Finding) -> FakeEngine:
    return FakeEngine(RunReport("0.1.0", "2.13.0", (target("A", warning),)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with one file, ``a.py``."""
    (tmp_path / "a.py").write_text("class A: ...\n")
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def mha_lint(
    engine: FakeEngine,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> CommandLine:
    isolated = engine_access.engine_for

    def engine_for(running: Running) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext(engine) if running.isolation else isolated(running)

    for command in (check, inspect):
        monkeypatch.setattr(command, "engine_for", engine_for)
    monkeypatch.setattr(engine_access, "load_engine", lambda: engine)
    return CommandLine(engine, capfd)
