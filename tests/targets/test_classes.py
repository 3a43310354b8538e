"""Tests of mha_lint.targets.classes."""

from __future__ import annotations

import ast

from mha_lint.targets.classes import LONGEST_LINE, ClassInfo, read_classes
from mha_lint.targets.imports import Imports


def _classes(text: str) -> dict[str, ClassInfo]:
    return read_classes(ast.parse(text), Imports({}, {}))


def test_methods_are_inherited_as_python_does() -> None:
    found = _classes(
        "class A:\n def f(self): 1\n def g(self): 1\n"
        "class B:\n def f(self): 2\n def h(self): 2\n"
        "class C(A, B):\n def g(self): 3\n"
    )
    lines = {name: node.lineno for name, node in found["C"].methods.items()}
    assert lines == {"f": 2, "g": 8, "h": 6}


def test_bases_that_meet_again_and_again_are_visited_once() -> None:
    lines = [f"class C{i}(C{i - 1}, D, C{i - 1}): pass" for i in range(1, 60)]
    found = _classes("class D: pass\nclass C0:\n def f(self): 1\n" + "\n".join(lines))
    assert [info.name for info in found["C59"].lineage][:3] == ["C59", "C58", "C57"]
    assert found["C59"].methods["f"].lineno == 3


def test_a_long_line_of_classes_is_followed_for_a_while() -> None:
    lines = [f"class C{i}(C{i - 1}): pass" for i in range(1, 3000)]
    found = _classes("class C0:\n def f(self): 1\n" + "\n".join(lines))
    assert "f" in found["C50"].methods
    assert len(found["C2999"].lineage) == LONGEST_LINE


def test_classes_that_extend_each_other_end() -> None:
    found = _classes("class A(B):\n def f(self): 1\nclass B(A):\n def g(self): 2\n")
    assert sorted(found["A"].methods) == sorted(found["B"].methods) == ["f", "g"]


def test_hundreds_of_branches_are_read() -> None:
    found = _classes("if x: pass\n" + "elif x: pass\n" * 900 + "else:\n class A: pass\n")
    assert list(found) == ["A"]


def test_a_method_that_only_raises_something_deep_is_abstract() -> None:
    deep = "x" + " + x" * 1500
    found = _classes(f"class A:\n def forward(self):\n  raise NotImplementedError({deep})\n")
    assert found["A"].is_abstract
