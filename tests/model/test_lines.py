"""Lines of files that are shown: never of a pipe, and none where they cannot be read."""

from __future__ import annotations

import linecache
import os
from pathlib import Path

from mha_lint.model.lines import LARGEST, line_of, lines_of


def test_lines_keep_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("one\ntwo")
    assert lines_of(str(path)) == ["one\n", "two\n"]
    assert [line_of(str(path), n) for n in (0, 1, 2, 3, -1)] == ["", "one\n", "two\n", "", ""]


def test_what_is_no_text_has_none(tmp_path: Path) -> None:
    rotated = tmp_path / "rot13.py"
    rotated.write_bytes(b"# coding: rot13\nx\n")
    assert lines_of(str(rotated)) == []
    assert lines_of(str(tmp_path / "none.py")) == []
    assert lines_of("a\0b") == []


def test_what_may_never_end_is_not_read(tmp_path: Path) -> None:
    pipe, large = tmp_path / "pipe.py", tmp_path / "large.py"
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(LARGEST + 1)
    assert lines_of(str(pipe)) == lines_of("/dev/zero") == lines_of(str(large)) == []


def test_what_linecache_was_told_is_shown() -> None:
    linecache.cache["<cell>"] = 3, None, ["x\n"], "<cell>"
    assert line_of("<cell>", 1) == "x\n"
