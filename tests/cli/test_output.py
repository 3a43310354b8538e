"""Views of terminals and pipes, and the progress bar."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from mha_lint.cli import progress
from mha_lint.cli.output import view_of


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self, encoding: str = "utf-8", *, terminal: bool = True) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def written(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_pipe_is_plain_and_100_wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    view = view_of(Terminal(terminal=False), cwd=tmp_path)
    assert (view.width, view.color, view.unicode) == (100, False, True)


def test_a_terminal_has_its_width_and_colors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert (view_of(Terminal(), cwd=tmp_path).width, view_of(Terminal(), cwd=tmp_path).color) == (
        70,
        True,
    )
    monkeypatch.setenv("COLUMNS", "500")
    assert view_of(Terminal(), cwd=tmp_path).width == 140


@pytest.mark.parametrize(
    ("variables", "terminal", "color"),
    [
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colors_obey_the_environment(
    variables: dict[str, str],
    terminal: bool,
    color: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert view_of(Terminal(terminal=terminal), cwd=tmp_path).color is color


def test_an_ascii_stream_gets_ascii(tmp_path: Path) -> None:
    assert not view_of(Terminal("ascii"), cwd=tmp_path).unicode
    assert not view_of(Terminal("latin-1"), cwd=tmp_path).unicode


def test_no_bar_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal(terminal=False))
    with progress.progress_bar(shown=True) as report:
        assert report is None


def test_the_bar_appears_after_a_second_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    now = [0.0]
    monkeypatch.setattr("mha_lint.cli.progress.time.monotonic", lambda: now[0])
    with progress.progress_bar(shown=True) as report:
        assert report is not None
        report(0, 3, "early.py::A")
        now[0] = 0.9
        report(1, 3, "early.py::B")
        assert stream.written() == ""
        now[0] = 1.1
        report(2, 3, "late.py::C")
    shown = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", stream.written())
    assert "2/3 late.py::C" in shown
    assert "early" not in shown
    assert stream.written().endswith("\x1b[2K"), "the bar is wiped"
