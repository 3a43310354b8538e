"""Waiting for an import."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from mha_lint.targets.arrival import Arrival


def test_it_tells_once_when_the_module_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "arriving_module.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[int] = []
    arrival = Arrival("arriving_module", lambda: seen.append(sys.modules["arriving_module"].value))
    arrival.install()
    assert seen == []
    made = importlib.import_module("arriving_module")
    assert seen == [1]
    assert arrival not in sys.meta_path
    assert type(made.__spec__.loader).__name__ == "SourceFileLoader"  # type: ignore[union-attr]
    monkeypatch.delitem(sys.modules, "arriving_module")


def test_what_is_there_is_told_at_once() -> None:
    seen: list[str] = []
    Arrival("sys", lambda: seen.append("sys")).install()
    assert seen == ["sys"]


def test_it_can_be_removed() -> None:
    arrival = Arrival("no_such_module", lambda: None)
    arrival.install()
    arrival.remove()
    assert arrival not in sys.meta_path
