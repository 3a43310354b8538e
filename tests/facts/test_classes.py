"""The source of a class that nobody can import any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mha_lint.facts.classes import class_sources, function_source


def made(path: Path, text: str) -> dict[str, Any]:
    path.write_text(text)
    names: dict[str, Any] = {"__name__": "gone"}
    exec(compile(text, str(path), "exec"), names)
    return names


def test_a_class_of_a_module_that_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "gone.py"
    cls = made(file, "import math\n\n\nclass A:\n    def f(self):\n        return math.pi\n")["A"]
    (found,) = class_sources(cls)
    assert (found.path, found.node.name, found.node.lineno) == (str(file), "A", 4)
    assert found.text == "class A:\n    def f(self):\n        return math.pi\n"


def test_a_class_without_a_method_has_no_place(tmp_path: Path) -> None:
    cls = made(tmp_path / "bare.py", "class A:\n    x = 1\n")["A"]
    assert class_sources(cls) == []


def test_a_wrapped_method_and_a_static_one(tmp_path: Path) -> None:
    text = """\
import functools


def keep(f):
    @functools.wraps(f)
    def inner(*a):
        return f(*a)
    return inner


class A:
    @keep
    def f(self):
        return 1


class B:
    @staticmethod
    def g():
        return 1
"""
    names = made(tmp_path / "wrapped.py", text)
    assert [s.node.lineno for s in class_sources(names["A"])] == [11]
    assert [s.node.name for s in class_sources(names["B"])] == ["B"]


def test_a_file_that_is_gone_or_broken(tmp_path: Path) -> None:
    file = tmp_path / "lost.py"
    cls = made(file, "class A:\n    def f(self):\n        return 1\n")["A"]
    file.unlink()
    assert class_sources(cls) == []
    other = tmp_path / "broken.py"
    cls = made(other, "class A:\n    def f(self):\n        return 1\n")["A"]
    other.write_text("class A(:\n")
    assert class_sources(cls) == []


def test_of_two_definitions_the_one_that_the_class_comes_from(tmp_path: Path) -> None:
    text = "class A:\n    def f(self): return 1\n\nB = A\n\nclass A:\n    def f(self): return 2\n"
    names = made(tmp_path / "twice.py", text)
    assert [found.node.lineno for found in class_sources(names["B"])] == [1]
    assert [found.node.lineno for found in class_sources(names["A"])] == [6]
    assert function_source(names["B"].f) is not None


def test_an_exported_script_has_sources(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    cls = made(script, "# %%\n\nclass A:\n    def f(self): return 1\n")["A"]
    script.write_text("# %%\n%matplotlib inline\nclass A:\n    def f(self): return 1\n")
    (found,) = class_sources(cls)
    assert found.text == "class A:\n    def f(self): return 1\n"
