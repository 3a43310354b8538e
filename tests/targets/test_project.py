"""Tests of mha_lint.targets.project: which files of a folder are worth parsing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mha_lint.targets.project import Project
from mha_lint.targets.resolve import python_files
from mha_lint.targets.scan import scan_file

Write = Callable[..., Path]

ATTENDS = """
class Attends(nn.Module):
    def forward(self, q, k, v):
        return (q @ k.mT).softmax(-1) @ v
"""
TAKES = """
from .{} import {}
class {}(Base):
    def __init__(self):
        self.part = {}()
"""


def _chain(write: Write, *names: str) -> None:
    """Write files each of which makes the class of the one before, the first of them attention."""
    write(ATTENDS, "p/zero.py")
    taken, module = "Attends", "zero"
    for name in names:
        write(TAKES.format(module, taken, name.title(), taken), f"p/{name}.py", head=False)
        taken, module = name.title(), name


def test_classes_are_followed_as_deep_as_the_scan_does(write: Write, tmp_path: Path) -> None:
    _chain(write, "one", "two", "three", "four")
    files = sorted(python_files(tmp_path))
    project = Project()
    told = {file.stem: project.may_hold(str(file)) for file in files}
    assert told == {"zero": True, "one": True, "two": True, "three": True, "four": False}
    assert {f.stem for f in files if scan_file(str(f))} == {"zero", "one", "two", "three"}


def test_a_file_that_takes_no_class_of_attention(write: Write, tmp_path: Path) -> None:
    write(ATTENDS + "def helper():\n    pass\n", "p/zero.py")
    write("from .zero import helper\nclass A(Base):\n    x = helper()\n", "p/a.py", head=False)
    write("from .zero import Attends\nx = Attends()\n", "p/b.py", head=False)  # no class of its own
    write("from json import Attends\nclass A(Base):\n    x = Attends()\n", "p/c.py", head=False)
    project = Project()
    assert [project.may_hold(str(tmp_path / "p" / name)) for name in ("a.py", "b.py", "c.py")] == [
        False, False, False,
    ]  # fmt: skip


def test_files_that_import_each_other_end(write: Write, tmp_path: Path) -> None:
    write(TAKES.format("b", "B", "A", "B"), "p/a.py", head=False)
    write(TAKES.format("a", "A", "B", "A"), "p/b.py", head=False)
    assert not Project().may_hold(str(tmp_path / "p/a.py"))


@pytest.mark.parametrize(
    ("data", "held"),
    [
        (b"def (:\n", False),
        (b"def (: a @ b\n", True),
        (b"x = 1\0", True),
        (b"x = '\xff'\n", True),
        ("x = 1\n".encode("utf-16"), True),
        (b"", False),
    ],
)
def test_what_is_no_text_may_hold_everything(tmp_path: Path, data: bytes, held: bool) -> None:
    (tmp_path / "a.py").write_bytes(data)
    assert Project().may_hold(str(tmp_path / "a.py")) is held


def test_what_is_no_file_must_be_told(tmp_path: Path) -> None:
    assert Project().may_hold(str(tmp_path / "none.py"))
    (tmp_path / "folder.py").mkdir()
    assert Project().may_hold(str(tmp_path / "folder.py"))


def _book(path: Path, *sources: object, **changes: object) -> str:
    cells = [{"cell_type": "code", "metadata": {}, "source": source} for source in sources]
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 4} | changes))
    return str(path)


def test_notebooks_by_the_text_of_their_cells(tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    assert not Project().may_hold(_book(path, "x = 1", ["@cached\n", "def f(): pass"]))
    assert Project().may_hold(_book(path, "x = 1", ["torch.matmul\\\n", "(a, b)"]))
    assert Project().may_hold(_book(path, "x = 1\ny = a @ b"))
    older = {"cell_type": "code", "input": "y = a @ b"}
    path.write_text(json.dumps({"worksheets": [{"cells": [older]}], "nbformat": 3}))
    assert Project().may_hold(str(path))


def test_notebooks_that_cannot_be_read_must_be_told(tmp_path: Path) -> None:
    path = tmp_path / "book.ipynb"
    assert Project().may_hold(_book(path, cells=None))
    assert Project().may_hold(_book(path, cells=[None]))
    assert Project().may_hold(_book(path, nbformat="4"))
    for data in (b"{", b"\xff", b"[" * 100_000):
        path.write_bytes(data)
        assert Project().may_hold(str(path))
