"""From a node to the user's line."""

from __future__ import annotations

import ast

from torch.fx import Node

from mha_lint.facts.classes import functions_of, tree_of
from mha_lint.model.source import Span
from mha_lint.sites.dependence import stack_of


def span_of(node: Node | None) -> Span | None:
    """Return the innermost user line that made `node`."""
    stack = stack_of(node)
    return stack[-1].span if stack else None


def span_in_forward(node: Node | None) -> Span | None:
    """Return the line within the innermost ``forward`` that led to `node`, helpers left aside."""
    stack = stack_of(node)
    for frame in reversed(stack):
        if frame.function.split(".")[-1] == "forward":
            return frame.span
    return stack[-1].span if stack else None


def span_in_class(node: Node | None, cls: type) -> Span | None:
    """Return the innermost line of a method of `cls` that led to `node`, else the innermost line."""
    methods = tuple(f"{c.__qualname__}." for c in cls.__mro__ if c is not object)
    own = [f for f in stack_of(node) if f.function.startswith(methods)]
    return own[-1].span if own else span_of(node)


def span_beside(node: Node | None, other: Node | None) -> Span | None:
    """Return the line that led to `node` in the innermost function that led to `other` as well."""
    found = span_of(node)
    for depth, (one, two) in enumerate(zip(stack_of(node), stack_of(other), strict=False)):
        if one.function != two.function:
            break
        found = one.span
        if stack_of(node)[: depth + 1] != stack_of(other)[: depth + 1]:
            break  # two calls: what lies inside them is no common function any more
    return found


def forward_of(node: Node | None) -> tuple[str, str] | None:
    """Return file and name of the innermost ``forward`` that led to `node`."""
    for frame in reversed(stack_of(node)):
        if frame.function.split(".")[-1] == "forward":
            return frame.span.path, frame.function
    return None


def hands_all_on(at: Span) -> bool:
    """Return whether a line hands on all that its function was called with, as a decorator's does."""
    around = [f for f in functions_of(at.path) if f.lineno <= at.line <= (f.end_lineno or f.lineno)]
    function = max(around, key=lambda f: f.lineno, default=None)
    if function is None or function.args.vararg is None:
        return False
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and at.line <= node.lineno <= max(at.line, at.end_line)
        and any(
            isinstance(one, ast.Starred)
            and isinstance(one.value, ast.Name)
            and one.value.id == function.args.vararg.arg
            for one in node.args
        )
        for node in ast.walk(function)
    )


def return_after(node: Node) -> Span | None:
    """Return the ``return`` statement of the ``forward`` that made `node`, else the line itself."""
    at = span_in_forward(node)
    if at is None:
        return None
    around = [f for f in functions_of(at.path) if f.lineno <= at.line <= (f.end_lineno or f.lineno)]
    if not around:
        return at
    innermost = max(around, key=lambda f: f.lineno)
    returns = [
        n
        for n in ast.walk(innermost)
        if isinstance(n, ast.Return) and (n.end_lineno or n.lineno) >= at.line
    ]
    if not returns:
        return at
    first = min(returns, key=lambda n: n.lineno)
    end = first.end_lineno or first.lineno
    return Span(at.path, first.lineno, first.col_offset + 1, end, (first.end_col_offset or 0) + 1)


def keyword_span(call: Span | None, name: str) -> Span | None:
    """Return the argument `name=` of a call that spans several lines, None if there is none."""
    if call is None or call.end_line <= call.line:
        return None
    for node in ast.walk(tree_of(call.path)):
        if isinstance(node, ast.Call) and node.lineno == call.line:
            for keyword in node.keywords:
                if keyword.arg == name:
                    end = keyword.end_lineno or keyword.lineno
                    column = (keyword.end_col_offset or 0) + 1
                    return Span(call.path, keyword.lineno, keyword.col_offset + 1, end, column)
    return None
