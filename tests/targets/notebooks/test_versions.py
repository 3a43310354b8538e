"""Tests of mha_lint.targets.notebooks.versions."""

from __future__ import annotations

import ast

from mha_lint.targets.notebooks.read import Notebook, joined
from mha_lint.targets.notebooks.versions import in_force, overridden, until, versions


def _book(*cells: str) -> tuple[ast.Module, Notebook]:
    book = joined("book.ipynb", list(enumerate(cells, 1)))
    return ast.parse(book.text), book


def _shown(tree: ast.Module) -> list[str]:
    return [ast.unparse(statement).split("\n")[0] for statement in tree.body]


CELLS = (
    "import torch", "class A:\n    x = 1", "a = A(1)\ny = 1", "class A:\n    x = 2", "a = A(2)",
    "def help(): ...\nz = A(3)\ny = 2\nw = 4", "class A:\n    x = 3",
)  # fmt: skip


def test_versions_by_cell() -> None:
    tree, book = _book(*CELLS)
    assert {cell: node.lineno for cell, node in versions(tree, book, "A").items()} == {
        2: 2, 4: 6, 7: 13,
    }  # fmt: skip
    assert [(cell, node.lineno) for cell, node in overridden(tree, book)] == [(2, 2), (4, 6)]


def test_the_last_of_equal_definitions_stands_for_all() -> None:
    tree, book = _book("def f(): return 1", "def f(): return 2", "def f(): return 1", "g = f")
    assert [(cell, node.lineno) for cell, node in overridden(tree, book)] == [(2, 2)]


def test_what_one_cell_defines_twice_was_never_in_force() -> None:
    tree, book = _book("def f(): return 1\ndef f(): return 2")
    assert overridden(tree, book) == []


def test_a_version_is_loaded_as_it_was() -> None:
    tree, _ = _book(*CELLS)
    first = ["import torch", "class A:", "a = A(1)", "y = 1", "def help():", "w = 4"]
    assert _shown(in_force(tree, "A", 2)) == first
    second = ["import torch", "class A:", "y = 1", "class A:", "a = A(2)", "def help():"]
    assert _shown(in_force(tree, "A", 6)) == [*second, "z = A(3)", "y = 2", "w = 4"]
    last = ["import torch", "class A:", "y = 1", "class A:", "def help():", "y = 2", "w = 4"]
    assert _shown(in_force(tree, "A", 13)) == [*last, "class A:"]


def test_a_function_is_no_earlier_version_of_a_class() -> None:
    tree, _ = _book("def A(): ...", "class A: ...")
    assert _shown(in_force(tree, "A", 2)) == ["class A:"]


def test_one_definition_changes_nothing() -> None:
    tree, _ = _book("class A: ...", "a = A()")
    assert in_force(tree, "A", 1) is tree
    assert _shown(until(tree, 1)) == ["class A:"]


def test_versions_that_hold_something_deep_are_compared() -> None:
    deep = "x" + " + x" * 1500
    tree, book = _book(
        f"def a(x): return {deep}", f"def a(x): return {deep}", f"def a(x): return -({deep})"
    )
    assert [cell for cell, _ in overridden(tree, book)] == [2]


def test_versions_that_differ_in_a_flag_or_a_large_number_differ() -> None:
    large = f"def a(): return 0x{'f' * 9000}"
    tree, book = _book("def a(): return 1", "def a(): return True", large)
    assert [cell for cell, _ in overridden(tree, book)] == [1, 2]
