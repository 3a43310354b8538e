"""Read an error of user code: the user's frame where it arose, its names, its numbers."""

from __future__ import annotations

import ast
import functools
import re
import traceback
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from mha_lint.targets.source import Source, SourceError, cached_source

DEEPEST = 8
"""User frames of a traceback that are looked at, from the innermost."""


@dataclass(slots=True)
class Failure:
    """An error, as far as it can be understood.

    ``lines``: source of the failing line of every user frame, innermost first. ``names``: the names
    on those lines. ``numbers``: integers of the message, or of the two sides of a failed assert, or
    of the test before a ``raise`` and then those of the message. ``guard``: names in that test.
    ``missing``: names of variables that were None where the error arose. ``conditions``: names in
    the tests of the ``if`` around the failing lines.
    """

    error: BaseException
    message: str
    lines: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    guard: list[str] = field(default_factory=list)
    frames: list[FrameType] = field(default_factory=list)

    def value(self, name: str) -> Any:
        """Return the value of the local variable `name` in the innermost frame that has it."""
        for frame in self.frames:
            if name in frame.f_locals:
                return frame.f_locals[name]
        return None


def read_failure(error: BaseException, home: str = "") -> Failure:
    """Return what can be read from `error` and its traceback; `home`: see `is_user_file`."""
    failure = Failure(error, str(error))
    steps = [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_user_file(frame.f_code.co_filename, home)
    ]
    for frame, line in reversed(steps[-DEEPEST:]):
        statement = statement_at(frame.f_code.co_filename, line)
        if statement is None:
            continue
        failure.frames.append(frame)
        failure.lines.append(ast.unparse(statement))
        failure.names += [n for n in _names_in(statement) if n not in failure.names]
        for test in conditions_at(frame.f_code.co_filename, line):
            failure.conditions += [n for n in _names_in(test) if n not in failure.conditions]
        failure.missing += [
            n for n, value in frame.f_locals.items() if value is None and n not in failure.missing
        ]
    if isinstance(error, AssertionError) and steps:
        frame, line = steps[-1]
        failure.numbers = _assert_numbers(statement_at(frame.f_code.co_filename, line), frame)
    elif steps and (guard := _guard(*steps[-1])) is not None:
        failure.guard = _names_in(guard)
        failure.names += [n for n in failure.guard if n not in failure.names]
        failure.numbers = _numbers_in(guard, steps[-1][0])
    if not failure.numbers or failure.guard:
        found = map(
            int, re.findall(r"(?<![\w.])\d+(?![\w.])|(?<=\d)x|(?<=x)\d+", _spaced(failure.message))
        )
        failure.numbers = list(dict.fromkeys([*failure.numbers, *found]))
        if parts := re.search(r"split_sizes=\[([\d, ]+)\]", failure.message):
            whole = sum(map(int, parts[1].split(",")))
            failure.numbers = list(dict.fromkeys([*failure.numbers[:1], whole, *failure.numbers]))
    return failure


def reached(error: BaseException, home: str = "") -> tuple[int, ...]:
    """Return the lines of user code from the outermost to where `error` arose.

    Of two errors of one call the greater one came later, as far as the code goes straight on.
    """
    return tuple(
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_user_file(frame.f_code.co_filename, home)
    )


def is_user_file(path: str, home: str = "") -> bool:
    """Tell whether `path` is source of the user: not installed, not ours, not generated.

    `home`: the folder of an installed package that is itself the target.
    """
    if home and path.startswith(home):
        return True
    if path.startswith("<") or "site-packages" in path or "dist-packages" in path:
        return False
    if path.startswith(_PYTHON) or path.startswith(_OURS):
        return False
    return not path.startswith(_TORCH)


_PYTHON = ast.__file__.rpartition("/")[0] + "/"
_OURS = __file__.rpartition("/targets/")[0] + "/"
_TORCH = torch.__file__.rpartition("/")[0] + "/"


def statement_at(path: str, line: int) -> ast.stmt | None:
    """Return the innermost statement that covers `line`."""
    try:
        source = cached_source(path)
    except SourceError:
        return None
    best = _statements(source).get(line)
    return None if isinstance(best, ast.FunctionDef | ast.ClassDef) else best


@functools.lru_cache(maxsize=16)
def _statements(source: Source) -> dict[int, ast.stmt]:
    """Return the innermost statement of every line."""
    found: dict[int, ast.stmt] = {}
    for node in ast.walk(source.tree):  # outer statements come before what they enclose
        if isinstance(node, ast.stmt):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                found[line] = node
    return found


def _names_in(tree: ast.AST) -> list[str]:
    """Return the names and the attributes in `tree`, each once."""
    found = [
        node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)
        for node in ast.walk(tree)
    ]
    return list(dict.fromkeys(name for name in found if isinstance(name, str)))


def conditions_at(path: str, line: int) -> list[ast.expr]:
    """Return the tests of every ``if`` that `line` stands in."""
    try:
        tree = cached_source(path).tree
    except SourceError:
        return []
    return [
        node.test
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]


_PLACES = re.compile(r"\b(dimension|dim|axis|tensor number|position|operand|argument)s? [#-]?\d+")
"""Numbers that say where, and are no sizes."""


def _spaced(message: str) -> str:
    message = _PLACES.sub(" ", message)
    return re.sub(r"(?<=\d)x(?=\d)", " x ", message)


def largest_number(message: str) -> int:
    """Return the largest integer of an error's message, 0 without any."""
    return max(map(int, re.findall(r"\d+", _spaced(message))), default=0)


def _guard(frame: FrameType, line: int) -> ast.expr | None:
    """Return the test of the ``if`` that led to a ``raise`` at `line`, if there is one."""
    if not isinstance(statement_at(frame.f_code.co_filename, line), ast.Raise):
        return None
    tests = conditions_at(frame.f_code.co_filename, line)
    return tests[-1] if tests else None  # the innermost one comes last


def _assert_numbers(statement: ast.stmt | None, frame: FrameType) -> list[int]:
    """Return the integers that the compared sides of a failed assert have."""
    match statement:
        case ast.Assert(test=test) | ast.Expr(value=ast.Call(args=[test, *_])):
            return _numbers_in(test, frame)  # torch._assert(test, message)
        case _:
            return []


def _numbers_in(test: ast.expr, frame: FrameType) -> list[int]:
    """Return the integers in `test`, of its sides first, with what they are in `frame`."""
    numbers: list[int] = []
    for node in ast.walk(test):
        if isinstance(
            node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.BinOp | ast.Constant
        ):
            try:
                code = compile(ast.Expression(node), "<assert>", "eval")
                value = eval(code, frame.f_globals, frame.f_locals)
            except Exception:  # a part that cannot be evaluated alone tells nothing
                continue
            if isinstance(value, torch.Size | tuple | list):
                numbers += [v for v in value if type(v) is int]
            elif type(value) is int:
                numbers.append(value)
    return list(dict.fromkeys(numbers))
