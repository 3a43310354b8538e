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
