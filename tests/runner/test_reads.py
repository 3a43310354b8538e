"""Which files a report rests on."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mha_lint.runner.reads import digest

ROOT = Path(__file__).resolve().parents[2]


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_digest_of_a_file_is_that_of_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"x = 1\n")
    assert digest(str(path)) == sha(b"x = 1\n")
    assert digest(str(tmp_path / "none")) == digest("a\0b") == ""


def test_what_may_never_end_has_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert digest(str(tmp_path / "pipe")) == digest("/dev/zero") == ""


def test_that_of_a_folder_changes_with_what_can_be_imported(tmp_path: Path) -> None:
    folder = f"{tmp_path}{os.sep}"
    (tmp_path / "a.py").write_text("")
    first = digest(folder)
    assert first == sha(b"a.py")
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "__pycache__").mkdir()
    assert digest(folder) == first
    (tmp_path / "b").mkdir()
    assert digest(folder) == sha(b"a.py\0b")


@pytest.mark.skipif(sys.platform == "win32", reason="paths of another form")
def test_what_is_read_and_imported_is_told(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    for name in ("data.txt", "early.txt", "late.txt", "module.py", "scratch/own.txt"):
        (tmp_path / name).write_text("")
    code = f"""
import json, os, sys
sys.path.insert(0, {str(tmp_path)!r})
os.chdir({str(tmp_path)!r})
from mha_lint.runner.reads import Reads
reads = Reads({str(tmp_path / "scratch")!r})
open("early.txt").close()
reads.watch()
open("data.txt").close()
open("scratch/own.txt").close()
open("written.txt", "w").close()
open(os.devnull).close()
try:
    open("missing.txt")
except OSError:
    pass
import module, base64
found = reads.result()
open("late.txt").close()
print(json.dumps([(one.path, one.digest) for one in found]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = dict(json.loads(done.stdout))
    empty = sha(b"")
    assert {Path(p).name: d for p, d in found.items() if p.startswith(str(tmp_path))} == {
        "data.txt": empty,
        "missing.txt": "",
        "module.py": empty,
        tmp_path.name: digest(f"{tmp_path}{os.sep}"),
    }


@pytest.mark.parametrize(
    "change", ["path.write_text('y = 2')", "path.with_name('b').replace(path)"]
)
def test_what_changes_meanwhile_makes_the_rest_worthless(tmp_path: Path, change: str) -> None:
    for name in ("data.txt", "b"):
        (tmp_path / name).write_text("x = 1")
    code = f"""
from pathlib import Path
from mha_lint.runner.reads import Reads
path = Path({str(tmp_path / "data.txt")!r})
for changes in (False, True):
    reads = Reads({str(tmp_path / "scratch")!r})
    reads.watch()
    path.read_text()
    if changes:
        {change}
    print(reads.result() is None)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "False\nTrue\n", done.stderr
