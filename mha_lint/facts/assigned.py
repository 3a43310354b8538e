"""Where the user's class sets what a parameter holds, or whether it learns; and whole statements."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeAlias

from torch import nn

from mha_lint.facts.classes import class_sources, tree_of
from mha_lint.facts.declaration import declared_at
from mha_lint.model.source import Span

Sets: TypeAlias = Callable[[ast.AST], bool]

_ALL = frozenset(["parameters", "named_parameters", "modules", "named_modules"])
_FILLS = frozenset(["zeros_", "ones_", "constant_", "zero_", "fill_", "zeros", "ones", "full"])


def fills(node: ast.AST) -> bool:
    """Tell whether `node` is a call that fills a tensor with one number."""
    return isinstance(node, ast.Call) and _called(node) in _FILLS


def freezes(node: ast.AST) -> bool:
    """Tell whether `node` says that a parameter requires no gradient."""
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets)
    return isinstance(node, ast.Call) and _called(node) == "requires_grad_"


def set_at(module: nn.Module | None, name: str, sets: Sets) -> Span | None:
    """Return where a user's class `sets` the parameter `name`, else where it is declared.

    The innermost class that names an attribute on the way to the parameter counts, in the same
    statement or in the loop around it.
    """
    owner: nn.Module | None = module
    for part in name.split("."):
        if owner is None:
            break
        if not type(owner).__module__.startswith("torch."):
            span = _in_class(type(owner), frozenset([part]), sets)
            span = span or _in_class(type(owner), _ALL, sets)
            if span is not None:
                return span
        child = getattr(owner, part, None)
        owner = child if isinstance(child, nn.Module) else None
    return declared_at(module, name)


def _in_class(cls: type, attributes: frozenset[str], sets: Sets) -> Span | None:
    for source in class_sources(cls):
        for statement in ast.walk(source.node):
            if not isinstance(statement, ast.For | ast.Expr | ast.Assign):
                continue
            named = {n.attr for n in ast.walk(statement) if isinstance(n, ast.Attribute)}
            if not named & attributes:
                continue
            found = next((n for n in ast.walk(statement) if sets(n)), None)
            if found is not None:
                return _span(source.path, found)
    return None


def _called(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def statement_at(path: str, line: int) -> Span:
    """Return the innermost simple statement of the file at `path` that covers `line`."""
    best: ast.stmt | None = None
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.stmt) or hasattr(node, "body"):
            continue
        if node.lineno <= line <= (node.end_lineno or node.lineno) and (
            best is None or node.lineno >= best.lineno
        ):
            best = node
    return _span(path, best) if best is not None else Span(path, line)


def _span(path: str, node: ast.AST) -> Span:
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    end_line = getattr(node, "end_lineno", None) or line
    end = getattr(node, "end_col_offset", None) or 0
    return Span(path, line, column, end_line, end + 1)
