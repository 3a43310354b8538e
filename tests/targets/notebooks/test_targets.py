"""Notebooks as targets: what they hold, by which name, and that each opens."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.targets.notebooks.read import INSTALL
from mha_lint.targets.open import open_subject
from mha_lint.targets.resolve import expand, parse_target, python_files
from mha_lint.targets.subject import Subject
from tests.targets.conftest import HEAD, Book

ATTENTION = """class A(nn.Module):
    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v))"""
OTHER = ATTENTION.replace("width=24", "size, width=16")


def _expanded(text: str, cwd: Path) -> list[TargetSpec | NotChecked]:
    parsed = parse_target(text, cwd=str(cwd))
    return [parsed] if isinstance(parsed, NotChecked) else expand([parsed], cwd=str(cwd))


def _told(found: list[TargetSpec | NotChecked]) -> list[tuple[str, int | str | None]]:
    return [
        (one.text, one.line) if isinstance(one, TargetSpec) else (one.target, one.reason)
        for one in found
    ]


def _opened(spec: TargetSpec | NotChecked, cwd: Path) -> Subject:
    assert isinstance(spec, TargetSpec) and spec.path is not None
    located = dataclasses.replace(spec, path=str(cwd / spec.path))
    subject = open_subject(located, timeout=20.0)
    assert isinstance(subject, Subject), subject
    return subject


def test_each_version_is_a_target(book: Book, tmp_path: Path) -> None:
    book(HEAD, OTHER, "A(1)(torch.randn(2, 3, 16))", ATTENTION, "A()(torch.randn(2, 5, 24))")
    found = _expanded("book.ipynb", tmp_path)
    assert _told(found) == [("book.ipynb::A@2", 7), ("book.ipynb::A", 17)]
    older, newer = (_opened(one, tmp_path) for one in found)
    assert (older.span.line, older.call) == (7, "torch.randn(2, 3, 16)")
    assert (newer.span.line, newer.call) == (17, "torch.randn(2, 5, 24)")
    assert older.args[0].shape == (2, 3, 16)


def test_a_version_by_name(book: Book, tmp_path: Path) -> None:
    book(HEAD, OTHER, ATTENTION)
    assert _told(_expanded("book.ipynb::A", tmp_path)) == [("book.ipynb::A", 16)]
    (older,) = _expanded("book.ipynb::A@2", tmp_path)
    assert isinstance(older, TargetSpec)
    assert (older.qualname, older.line, older.stated) == ("A", 7, True)
    (none,) = _expanded("book.ipynb::A@5", tmp_path)
    assert isinstance(none, NotChecked)
    assert (none.reason, none.hint) == (
        "cell 5 of book.ipynb defines no A", "it is defined in cells 2, 3",
    )  # fmt: skip


def test_a_replaced_helper_is_a_target_of_its_own(book: Book, tmp_path: Path) -> None:
    helper = "def attend(q, k, v):\n    return (q @ k.transpose(-2, -1){}).softmax(-1) @ v"
    user = ATTENTION.replace("F.scaled_dot_product_attention", "attend")
    book(HEAD, helper.format(""), user, helper.format(" / q.size(-1) ** 0.5"))
    found = _expanded("book.ipynb", tmp_path)
    assert _told(found) == [("book.ipynb::attend@2", 7), ("book.ipynb::A", 9)]
    assert len(_opened(found[0], tmp_path).args) == 3


def test_a_broken_cell_that_defines_something_is_not_checked(book: Book, tmp_path: Path) -> None:
    broken = ATTENTION.replace("super()", "super())").replace("class A", "class B")
    book(HEAD, broken, ATTENTION, "print('no definition'")
    why = "syntax error in cell 2, line 3: unmatched ')'"
    assert _told(_expanded("book.ipynb", tmp_path)) == [
        ("book.ipynb::B", why), ("book.ipynb::A", 16),
    ]  # fmt: skip
    assert _told(_expanded("book.ipynb::B", tmp_path)) == [("book.ipynb::B", why)]


@pytest.mark.parametrize(
    "cells",
    [
        ("x = await something()", "async with a as b:\n    pass"),
        ("from __future__ import annotations\ndef f(x: Unknown): ...",),
        ("IN_COLAB = 'google.colab' in str(get_ipython())\nget_ipython().system('ls')",),
        ("from google.colab import drive\ndrive.mount('/content')\ndisplay(1)",),
        ("%time h = [A()(torch.randn(1, 2, 24)) for _ in range(10**9)]\nwhile True:\n    pass",),
    ],
)
def test_what_notebooks_do_beside_does_not_stop_it(
    book: Book, tmp_path: Path, cells: tuple[str, ...]
) -> None:
    book(HEAD, *cells, ATTENTION)
    (spec,) = _expanded("book.ipynb::A", tmp_path)
    assert _opened(spec, tmp_path).name == "A"


def test_folders_hold_notebooks(book: Book, tmp_path: Path) -> None:
    book(HEAD, ATTENTION, name="a/one.ipynb")
    book(HEAD, ATTENTION, name="a/.ipynb_checkpoints/one-checkpoint.ipynb")
    book("x <- 1", name="a/r.ipynb", kernelspec={"language": "R"})
    (tmp_path / "a/z.ipynb").write_text("{")
    files = [path.name for path in python_files(tmp_path / "a")]
    assert files == ["one.ipynb", "r.ipynb", "z.ipynb"]
    found = _expanded("a", tmp_path)
    assert [name for name, _ in _told(found)] == ["a/one.ipynb::A", "a/z.ipynb"]


def test_a_named_notebook_of_another_language_is_not_checked(book: Book, tmp_path: Path) -> None:
    book("x <- 1", name="r.ipynb", kernelspec={"language": "R"})
    why = "r.ipynb is a notebook of R, not of Python"
    assert _told(_expanded("r.ipynb", tmp_path)) == [("r.ipynb", why)]


def test_without_nbformat_a_folder_is_not_called_clean(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nbformat", None)
    book(HEAD, ATTENTION, name="a/one.ipynb")
    book(HEAD, ATTENTION, name="a/two.ipynb")
    book("print(1)", name="b/plain.ipynb")
    (told,) = _expanded("a", tmp_path)
    assert isinstance(told, NotChecked)
    assert told.reason == "a/one.ipynb and 1 more may hold attention, and nbformat is not installed"
    assert told.hint == INSTALL
    assert _expanded("b", tmp_path) == []
    (named,) = _expanded("b/plain.ipynb", tmp_path)
    assert isinstance(named, NotChecked)
    assert named.reason == "b/plain.ipynb is a notebook, and nbformat is not installed"
