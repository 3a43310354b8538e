"""The source of a user's class, found through the code of its methods.

The module that holds it may be gone from ``sys.modules``, so `inspect` cannot be asked.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from mha_lint.targets.source import Source, SourceError, cached_source

Definition = ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True, slots=True)
class ClassSource:
    """A class or function of the user: its file, its node in that file, and its text."""

    path: str
    node: Definition
    text: str


def class_sources(cls: type) -> list[ClassSource]:
    """Return the sources of `cls` and of its bases, torch's own left out."""
    found: list[ClassSource] = []
    for base in cls.__mro__:
        if base is object or base.__module__.startswith("torch."):
            continue
        source = _source_of(base)
        if source is not None:
            found.append(source)
    return found


def _source_of(cls: type) -> ClassSource | None:
    for value in vars(cls).values():
        function: Any = getattr(value, "__func__", value)
        function = getattr(function, "__wrapped__", function)
        if isinstance(function, FunctionType):
            code = function.__code__
            node = _definition(code, cls.__name__)
            if isinstance(node, ast.ClassDef):
                return ClassSource(code.co_filename, node, _text(code.co_filename, node))
    return None


def function_source(function: Any) -> ClassSource | None:
    """Return the source of a plain function."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    if code is None:
        return None
    node = _definition(code, code.co_name)
    return ClassSource(code.co_filename, node, _text(code.co_filename, node)) if node else None


def _definition(code: CodeType, name: str) -> Definition | None:
    """Return the definition called `name` that holds `code`, of several the innermost."""
    found = _definitions(code.co_filename).get(name, ())
    line = code.co_firstlineno
    around = [n for n in found if _first_line(n) <= line <= (n.end_lineno or n.lineno)]
    return around[-1] if around else next(iter(found), None)


def _first_line(node: Definition) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _read(path: str) -> Source | None:
    try:
        return cached_source(path)
    except SourceError:
        return None


@lru_cache(maxsize=64)
def _definitions(path: str) -> dict[str, list[Definition]]:
    found: dict[str, list[Definition]] = {}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


@lru_cache(maxsize=64)
def tree_of(path: str) -> ast.Module:
    """Return the parsed file, an empty module where it cannot be parsed."""
    source = _read(path)
    return source.tree if source is not None else ast.Module([], [])


@lru_cache(maxsize=64)
def functions_of(path: str) -> tuple[ast.FunctionDef, ...]:
    """Return every function and method of a file."""
    return tuple(n for n in ast.walk(tree_of(path)) if isinstance(n, ast.FunctionDef))


@lru_cache(maxsize=64)
def _lines(path: str) -> tuple[str, ...]:
    source = _read(path)
    return tuple(source.text.splitlines(keepends=True)) if source is not None else ()


def _text(path: str, node: Definition) -> str:
    return "".join(_lines(path)[node.lineno - 1 : node.end_lineno])
