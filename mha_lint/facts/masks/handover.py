"""Where a mask fails to be handed on: the line on the way to the attention that does not get it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection

from torch.fx import Node

from mha_lint.facts.classes import functions_of, tree_of
from mha_lint.facts.places import hands_all_on, span_beside, span_of
from mha_lint.model.source import Frame, Span
from mha_lint.sites.dependence import stack_of


def not_handed_on(node: Node, name: str) -> Span | None:
    """Return the first line on the way to `node` that reads nothing made of the argument `name`.

    From call to call the argument is followed by the names that it is bound to.
    """
    stack = tuple(f for f in stack_of(node) if not hands_all_on(f.span))
    return _followed(stack, {name.partition("[")[0].partition(".")[0]}) or span_of(node)


def _followed(stack: tuple[Frame, ...], names: set[str]) -> Span | None:
    """Return the line at which what `names` are bound to in the first frame is lost."""
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
            return _left_out_by_branch(function, names, frame.span)
        names = _parameters(inner, calls, _reader(bound))
        if not names:
            return frame.span
    return None


def _left_out_by_branch(function: ast.FunctionDef, names: set[str], until: Span) -> Span | None:
    """Return the ``if`` that makes something of `names`, ahead of a line, on another condition yet.

    The mask is there and has no effect: the branch was not taken.
    """
    for node in ast.walk(function):
        if not isinstance(node, ast.If) or node.lineno > until.line:
            continue
        if _asks_for_none_alone(node.test):
            continue
        made = [n for b in node.body for n in ast.walk(b) if isinstance(n, ast.Assign)]
        if any(_names_in(n.value) & names for n in made):
            end = node.test.end_lineno or node.lineno
            column = (node.test.end_col_offset or 0) + 1
            return Span(until.path, node.lineno, node.col_offset + 1, end, column)
    return None


def _asks_for_none_alone(test: ast.expr) -> bool:
    """Return whether a condition is that a name is bound, or bound to something else than None."""
    match test:
        case ast.Name():
            return True
        case ast.Compare(left=ast.Name(), comparators=[ast.Constant(value=None)]):
            return True
    return False


def not_used_beside(node: Node, made: Node) -> Span | None:
    """Return the line that leads to `node` in the function that built the mask `made`.

    Where the mask's name is bound to None in between, that is the line; where that line hands the
    mask on, the line further in that does not.
    """
    place, built = span_beside(node, made), span_of(made)
    if built is None:
        return place
    function = _around(built)
    if function is None or place is None:
        return place
    names = dict.fromkeys(_targets_at(function, built), built.line)
    dropped = _bound_to_none(function, names, place)
    stack = tuple(f for f in stack_of(node) if not hands_all_on(f.span))
    frames = [d for d, f in enumerate(stack) if f.span == place]
    if dropped is not None or not frames:
        return dropped or place
    rest = stack[frames[-1] :]
    if names:
        return _followed(rest, set(names)) or place
    within = [
        n
        for n in ast.walk(tree_of(place.path))
        if isinstance(n, ast.Call) and _inside(n, place) and not _inside(n, built)
    ]
    given = _parameters(rest[1], within, lambda v: _holds(v, built)) if len(rest) > 1 else set()
    return (_followed(rest[1:], given) if given else None) or place


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


def _reader(names: Collection[str]) -> Callable[[ast.expr], bool]:
    return lambda value: bool(_names_in(value) & set(names))


def _holds(node: ast.expr, span: Span) -> bool:
    """Return whether the expression `span` is all or part of `node`."""
    start = (node.lineno, node.col_offset + 1)
    end = (node.end_lineno or node.lineno, (node.end_col_offset or 0) + 1)
    return start <= (span.line, span.column) and (span.end_line, span.end_column) <= end


def _parameters(inner: Frame, calls: list[ast.Call], reads: Callable[[ast.expr], bool]) -> set[str]:
    """Return the parameters of the function of `inner` that the calls give what `reads` a mask."""
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
            if reads(value):
                starred = isinstance(value, ast.Starred) or place >= len(order)
                found |= (known | rest) if starred else {order[place]}
        for keyword in call.keywords:
            if reads(keyword.value):
                if keyword.arg is None:
                    found |= known | rest
                else:
                    found |= {keyword.arg} if keyword.arg in known else rest
    return found
