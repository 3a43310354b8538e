"""Tests of mha_lint.targets.notebooks.read."""

from __future__ import annotations

import json
import linecache
import sys
from pathlib import Path
from typing import Any

import pytest

from mha_lint.targets.notebooks.read import (
    INSTALL,
    BrokenCell,
    Cell,
    NoReaderError,
    NotebookError,
    OtherLanguageError,
    read_notebook,
)
from tests.targets.conftest import Book, notebook


def _written(tmp_path: Path, content: bytes | Any) -> str:
    path = tmp_path / "book.ipynb"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(path)


def test_cells_are_joined_and_counted_with_text_cells(book: Book) -> None:
    found = read_notebook(str(book("#md title", "%pip install x\na = 1", "#md more", "b = 2\n")))
    assert found.text == "\na = 1\nb = 2\n\n"
    assert found.cells == (Cell(2, 1, 2), Cell(4, 3, 2))
    assert [found.cell_of(line) for line in (1, 2, 3, 4)] == [2, 2, 4, 4]


def test_python_knows_the_lines(book: Book) -> None:
    path = str(book("a = 1", "b = 2"))
    read_notebook(path)
    linecache.checkcache(path)
    assert linecache.getline(path, 2) == "b = 2\n"


def test_a_changed_notebook_is_read_again(book: Book) -> None:
    assert read_notebook(str(book("a = 1"))).text == "a = 1\n"
    path = str(book("a = 1", "b = 2, 3"))
    assert read_notebook(path).text == "a = 1\nb = 2, 3\n"
    assert linecache.getline(path, 2) == "b = 2, 3\n"


def test_a_broken_cell_leaves_empty_lines(book: Book) -> None:
    found = read_notebook(str(book("a = 1", "x = (\nclass A:\n  def f(self): ...", "b = 2")))
    assert found.text == "a = 1\n\n\n\nb = 2\n"
    assert found.broken == (BrokenCell(2, 1, "'(' was never closed", ("A",)),)
    assert str(found.broken[0]) == "syntax error in cell 2, line 1: '(' was never closed"


@pytest.mark.parametrize(
    "bad", ["a = 1\0", "return = 3", "a b", "if x:\n\ty\n        z", "x = 1 \\"]
)
def test_what_breaks_one_cell_breaks_no_other(book: Book, bad: str) -> None:
    found = read_notebook(str(book(bad, "b = 2")))
    assert [one.cell for one in found.broken] == [1]
    assert found.text.rstrip("\n").rpartition("\n")[2] == "b = 2"


def test_an_indented_cell_is_read_as_ipython_does(book: Book) -> None:
    found = read_notebook(str(book("    a = 1\n    b = 2")))
    assert found.text == "a = 1\nb = 2\n"
    assert found.cells == (Cell(1, 1, 2, indent=4),)


def test_line_ends_and_lists_of_lines(tmp_path: Path) -> None:
    made = notebook("a = 1\r\nb = 2", "c = 3\rd = 4")
    made["cells"].append(dict(made["cells"][0], source=["e = 5\n", "f = 6"]))
    found = read_notebook(_written(tmp_path, made))
    assert found.text == "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\nf = 6\n"


def test_nbformat_3(tmp_path: Path) -> None:
    code = {
        "cell_type": "code", "collapsed": False, "input": ["a = 1\n", "b = 2"],
        "language": "python", "metadata": {}, "outputs": [],
    }  # fmt: skip
    head = {"cell_type": "heading", "level": 1, "metadata": {}, "source": ["T"]}
    sheets = [{"metadata": {}, "cells": [head, code]}]
    made = {"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0, "worksheets": sheets}
    found = read_notebook(_written(tmp_path, made))
    assert (found.text, found.cells) == ("a = 1\nb = 2\n", (Cell(2, 1, 2),))


def test_a_mark_of_the_byte_order_and_no_cells(tmp_path: Path) -> None:
    path = _written(tmp_path, b"\xef\xbb\xbf" + json.dumps(notebook()).encode())
    assert read_notebook(path).cells == ()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no notebook that can be read (NotJSONError"),
        (b"hello", "is no notebook that can be read (NotJSONError"),
        (b'{"caf\xe9": 1}', "is not UTF-8 text (byte 5)"),
        ([1, 2], "is no notebook that can be read"),
        ({"a": 1}, "is no notebook that can be read"),
        ({"cells": None, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, "no notebook that"),
        ({"cells": ["x"], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, "no notebook that"),
        ({"cells": [], "metadata": {}, "nbformat": 5, "nbformat_minor": 0}, "nbformat version 5"),
    ],
)
def test_what_is_no_notebook_is_told(tmp_path: Path, content: Any, why: str) -> None:
    with pytest.raises(NotebookError) as caught:
        read_notebook(_written(tmp_path, content))
    assert why in caught.value.reason


@pytest.mark.parametrize(
    "metadata",
    [{"kernelspec": {"language": "R", "name": "ir"}}, {"language_info": {"name": "julia"}}],
)
def test_another_language_is_told(book: Book, metadata: dict[str, Any]) -> None:
    path = book("x <- 1", **metadata)
    with pytest.raises(OtherLanguageError, match=r"is a notebook of (R|julia), not of Python"):
        read_notebook(str(path))


def test_a_cell_of_another_language_is_passed_over(tmp_path: Path) -> None:
    made = notebook("x <- 1", "a = 1")
    made["cells"][0]["metadata"] = {"vscode": {"languageId": "r"}}
    found = read_notebook(_written(tmp_path, made))
    assert (found.text, found.cells, found.broken) == ("a = 1\n", (Cell(2, 1, 1),), ())


def test_without_nbformat_it_says_what_to_install(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nbformat", None)
    with pytest.raises(NoReaderError) as caught:
        read_notebook(str(book("a = 'without a reader'")))
    assert caught.value.reason.endswith("book.ipynb is a notebook, and nbformat is not installed")
    assert caught.value.hint == INSTALL


@pytest.mark.parametrize("wrong", [[1], "x", 3, True, None])
@pytest.mark.parametrize("key", ["kernelspec", "language_info", "vscode"])
def test_metadata_of_any_type_is_no_fault(tmp_path: Path, key: str, wrong: object) -> None:
    metadata = {key: wrong}
    cell = {"cell_type": "code", "source": "x = 1", "metadata": metadata, "outputs": []}
    content = {"nbformat": 4, "nbformat_minor": 0, "metadata": metadata, "cells": [cell]}
    assert read_notebook(_written(tmp_path, content)).text == "x = 1\n"
