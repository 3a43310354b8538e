"""Branches of the source that the recorded call did not take."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import functions_of
from mha_lint.sites.dependence import stack_of


def read_where_not_run(bench: Bench, name: str) -> bool:
    """Return whether a function beside some attention reads its argument `name` on a branch that did
    not run: a setting decides whether it is read.

    A branch that asks whether the argument is there at all is none.
    """
    name = name.partition("[")[0].partition(".")[0]
    ran = {
        (frame.span.path, frame.span.line)
        for node in bench.recording.graph.nodes
        for frame in stack_of(node)
    }
    return any(
        _reads(part, name) and not _has_run(part, path, ran)
        for path, function in _functions(bench)
        if name in _parameters(function)
        for part in _parts(function, name)
    )


def _functions(bench: Bench) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions of the files on the stacks of what attention computes."""
    paths = {frame.span.path for site in bench.sites for frame in stack_of(site.all[0].context)}
    for path in sorted(paths):
        yield from ((path, function) for function in functions_of(path))


def _parameters(function: ast.FunctionDef) -> set[str]:
    given = function.args
    return {a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def _parts(function: ast.FunctionDef, name: str) -> Iterator[list[ast.AST]]:
    """Yield the branches that a condition on something else than the presence of `name` chooses."""
    for node in ast.walk(function):
        if isinstance(node, ast.If) and not _asks_for_presence(node.test, name):
            yield list(node.body)
            yield list(node.orelse)
        elif isinstance(node, ast.IfExp) and not _asks_for_presence(node.test, name):
            yield [node.body]
            yield [node.orelse]


def _asks_for_presence(test: ast.expr, name: str) -> bool:
    """Return whether a condition is ``name``, ``not name``, ``name is None`` or ``name is not None``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _asks_for_presence(inner, name)
        case (
            ast.Name(id=found)
            | ast.Compare(left=ast.Name(id=found), comparators=[ast.Constant(value=None)])
        ):
            return found == name
    return False


def _reads(part: list[ast.AST], name: str) -> bool:
    """Return whether a branch reads `name` for more than a message."""
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for one in part
        if not isinstance(one, ast.Raise | ast.Assert)
        for node in ast.walk(one)
    )


def _has_run(part: list[ast.AST], path: str, ran: set[tuple[str, int]]) -> bool:
    """Return whether an operation was recorded in a branch; that of an expression has no own lines."""
    if not isinstance(part[0], ast.stmt):
        return False
    first = part[0].lineno
    last = max(getattr(one, "end_lineno", None) or first for one in part)
    return any((path, line) in ran for line in range(first, last + 1))
