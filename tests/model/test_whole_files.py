"""A file is the old or the new one at every moment."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from mha_lint.model.whole_files import write_whole


def test_a_file_is_replaced_and_nothing_left_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    write_whole(file, b"one")
    write_whole(file, b"two")
    assert file.read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_the_old_one_stays_where_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(b"old")

    def full(self: Path, _: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_link_stays_a_link_and_rights_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "real.json", tmp_path / "link.json"
    file.write_bytes(b"old")
    file.chmod(0o640)
    link.symlink_to(file)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write_whole, args=(pipe, b"report"))
    writer.start()
    assert pipe.read_bytes() == b"report"
    writer.join()
