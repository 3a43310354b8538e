"""The source of a user's class, found through the code of its methods.

The module that holds it may be gone from ``sys.modules``, so `inspect` cannot be asked.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any


@dataclass(frozen=True, slots=True)
class ClassSource:
    """A class or function of the user: its file, its node in that file, and its text."""

    path: str
    node: ast.ClassDef | ast.FunctionDef
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
            node = _classes(code.co_filename).get(cls.__name__)
            if isinstance(node, ast.ClassDef):
                return ClassSource(code.co_filename, node, _text(code.co_filename, node))
    return None


def function_source(function: Any) -> ClassSource | None:
    """Return the source of a plain function."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    if code is None:
        return None
    node = _classes(code.co_filename).get(code.co_name)
    return ClassSource(code.co_filename, node, _text(code.co_filename, node)) if node else None


@lru_cache(maxsize=64)
def _read(path: str) -> tuple[str, ...]:
    try:
        return tuple(Path(path).read_text(encoding="utf-8-sig").splitlines(keepends=True))
    except (OSError, UnicodeDecodeError):
        return ()


@lru_cache(maxsize=64)
def _classes(path: str) -> dict[str, ast.ClassDef | ast.FunctionDef]:
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {n.name: n for n in reversed(list(ast.walk(tree_of(path)))) if isinstance(n, kinds)}


@lru_cache(maxsize=64)
def tree_of(path: str) -> ast.Module:
    """Return the parsed file, an empty module where it cannot be parsed."""
    try:
        return ast.parse("".join(_read(path)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


@lru_cache(maxsize=64)
def functions_of(path: str) -> tuple[ast.FunctionDef, ...]:
    """Return every function and method of a file."""
    return tuple(n for n in ast.walk(tree_of(path)) if isinstance(n, ast.FunctionDef))


def _text(path: str, node: ast.ClassDef | ast.FunctionDef) -> str:
    return "".join(_read(path)[node.lineno - 1 : node.end_lineno])
