"""Where a mask fails to be handed on: the line on the way to the attention that does not get it."""

from __future__ import annotations

import ast

from torch.fx import Node

from mha_lint.facts.classes import functions_of, tree_of
from mha_lint.facts.places import span_beside, span_of
from mha_lint.model.source import Frame, Span
from mha_lint.sites.dependence import stack_of


def not_handed_on(node: Node, name: str) -> Span | None:
    """Return the first line on the way to `node` that reads nothing made of the argument `name`.

    From call to call the argument is followed by the names that it is bound to.
    """
    stack = stack_of(node)
    names = {name.partition("[")[0].partition(".")[0]}
    for depth, frame in enumerate(stack):
        function = _around(frame.span)
        if function is None:
            return frame.span
        bound = _bound(function, names, frame.span)
        dropped = _bound_to_none(function, bound, frame.span)
        if dropped is not None:
            return dropped
        calls = _calls_reading(frame.span, set(bound))
        if not calls and not _reads(frame.span, set(bound)):
            return frame.span
        inner = stack[depth + 1] if depth + 1 < len(stack) else None
        if inner is None:
            break
        names = _parameters(inner, calls, set(bound))
        if not names:
            return frame.span
    return span_of(node)


def not_used_beside(node: Node, made: Node) -> Span | None:
    """Return the line that leads to `node` in the function that built the mask `made`.

    Where the mask's name is bound to None in between, that is the line.
    """
    place, built = span_beside(node, made), span_of(made)
    if built is None:
        return place
    function = _around(built)
    if function is None or place is None:
        return place
    names = dict.fromkeys(_targets_at(function, built), built.line)
    return _bound_to_none(function, names, place) or place


def _bound_to_none(function: ast.FunctionDef, names: dict[str, int], until: Span) -> Span | None:
    """Return where one of `names` is bound to None, behind its line and ahead of another."""
    for statement in ast.walk(function):
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Constant)
            and statement.value.value is None
            and statement.lineno <= until.line
            and any(statement.lineno > names.get(n, until.line) for n in _names_bound(statement))
        ):
            end = statement.end_lineno or statement.lineno
            column = (statement.end_col_offset or 0) + 1
            return Span(until.path, statement.lineno, statement.col_offset + 1, end, column)
    return None


def _around(span: Span) -> ast.FunctionDef | None:
    around = [f for f in functions_of(span.path) if f.lineno <= span.line <= (f.end_lineno or 0)]
    return max(around, key=lambda f: f.lineno, default=None)


def _bound(function: ast.FunctionDef, names: set[str], until: Span) -> dict[str, int]:
    """Return `names` and the names bound to what is made of them, up to a line, with their first lines."""
    bound = dict.fromkeys(names, function.lineno)
    statements = sorted(
        (
            n
            for n in ast.walk(function)
            if isinstance(n, ast.Assign | ast.AugAssign | ast.AnnAssign)
        ),
        key=lambda n: n.lineno,
    )
    for statement in statements:
        if statement.lineno > until.line or statement.value is None:
            break
        if statement.lineno <= until.line <= (statement.end_lineno or statement.lineno):
            continue
        if _names_in(statement.value) & bound.keys():
            for name in _names_bound(statement):
                bound.setdefault(name, statement.lineno)
    return bound


def _names_bound(statement: ast.Assign | ast.AugAssign | ast.AnnAssign) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _targets_at(function: ast.FunctionDef, span: Span) -> set[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and node.lineno <= span.line <= (node.end_lineno or 0):
            return _names_bound(node)
    return set()


def _names_in(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _inside(node: ast.expr | ast.keyword, span: Span) -> bool:
    start = (node.lineno, node.col_offset + 1)
    end = (node.end_lineno or node.lineno, (node.end_col_offset or 0) + 1)
    return (span.line, span.column) <= start and end <= (span.end_line, span.end_column)


def _reads(span: Span, names: set[str]) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id in names and _inside(n, span)
        for n in ast.walk(tree_of(span.path))
    )


def _calls_reading(span: Span, names: set[str]) -> list[ast.Call]:
    return [
        n
        for n in ast.walk(tree_of(span.path))
        if isinstance(n, ast.Call) and _inside(n, span) and _names_in(n) & names
    ]


def _parameters(inner: Frame, calls: list[ast.Call], bound: set[str]) -> set[str]:
    """Return the parameters of the function of `inner` that the calls give what is in `bound`."""
    function = _around(inner.span)
    if function is None:
        return set()
    arguments = function.args
    order = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if order[:1] in (["self"], ["cls"]):
        order = order[1:]
    known = {*order, *(a.arg for a in arguments.kwonlyargs)}
    rest = {a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None}
    found: set[str] = set()
    for call in calls:
        for place, value in enumerate(call.args):
            if _names_in(value) & bound:
                starred = isinstance(value, ast.Starred) or place >= len(order)
                found |= (known | rest) if starred else {order[place]}
        for keyword in call.keywords:
            if _names_in(keyword.value) & bound:
                if keyword.arg is None:
                    found |= known | rest
                else:
                    found |= {keyword.arg} if keyword.arg in known else rest
    return found
