"""Targets have processes of their own, unless the user or the system will not have it."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from mha_lint.cli import engine_access
from mha_lint.cli.engine_access import engine_for
from mha_lint.model.settings import Running
from mha_lint.runner.run import Runner


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("engine")
    monkeypatch.setattr(engine_access, "load_engine", lambda: made)
    return made


def test_isolation_is_the_default() -> None:
    with engine_for(Running()) as judges:
        assert isinstance(judges, Runner)


def test_without_isolation_this_process_judges(
    engine: types.ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with engine_for(Running(isolation=False)) as judges:
        assert judges is engine
    assert capsys.readouterr().err == ""


def test_a_system_without_fork_is_told(
    engine: types.ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(os, "fork")
    with engine_for(Running()) as judges:
        assert judges is engine
    assert capsys.readouterr().err == (
        "this system cannot fork: user code runs in mha-lint's own process, without isolation\n"
    )


def test_a_run_imports_no_torch_here() -> None:
    code = (
        "import sys; from mha_lint.cli.main import run;"
        "from mha_lint.runner import run as r;"
        "run(['check', 'nothing-here.py', '--isolated', '--no-cache']);"
        "print(sorted({'torch', 'mha_lint.engine.run'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
