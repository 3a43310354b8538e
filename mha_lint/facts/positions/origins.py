"""Where in the user's source a table of positions or angles gets its shape and its contents."""

from __future__ import annotations

import ast

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import functions_of, tree_of
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.places import span_of
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_tensor, operands
from mha_lint.sites.finder import DATA_ERRORS

LAYOUT = frozenset(
    ["cat", "concat", "concatenate", "stack", "repeat", "repeat_interleave", "tile", "expand"]
)
"""Calls that spread one angle over two channels. Only the place of a finding hangs on them."""
STEPS = 8
"""Assignments that are followed back from a table to where it was laid out."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def follows_input(bench: Bench, tables: tuple[Node, ...]) -> bool:
    """Return whether some table is made from arguments of the call, and not from their shape alone."""
    following = tuple(t for t in tables if bench.dependence.on_data(t))
    above = bench.dependence.ancestors(following)
    for placeholder in bench.recording.placeholders:
        if placeholder not in above:
            continue
        value = bench.replay.base(placeholder)
        moved = value + 0.31 if value.is_floating_point() else value.flip(tuple(range(value.dim())))
        if torch.equal(value, moved):
            return True  # whole numbers that read the same backwards cannot be moved
        try:
            after = bench.replay.run(following, {placeholder: moved})
        except DATA_ERRORS:
            return True  # on other numbers it reads what is not there
        for one, other in zip(after, following, strict=True):
            if not torch.equal(one, bench.replay.base(other)):
                return True
    return False


def follows_parameters(bench: Bench, tables: tuple[Node, ...]) -> bool:
    """Return whether some table is learned."""
    parameters = bench.recording.parameters
    names = frozenset[str]().union(*(bench.dependence.parameters(t) for t in tables))
    return any(
        bench.recording.values[parameters[n]].requires_grad for n in names if n in parameters
    )


def layout_span(bench: Bench, tables: tuple[Node, ...], count: int) -> Span | None:
    """Return where one angle was spread over two of `count` channels, None if nowhere in sight."""
    front = [t for t in tables if _last(bench, t) == count]
    seen: set[Node] = set()
    while front:
        node = front.pop(0)
        if node in seen:
            continue
        seen.add(node)
        if node.op == "get_attr":
            declared = declared_at(bench.recording.module, _name(node))
            if declared is not None:
                return _laid_out(declared)
            continue
        read = [n for n in operands(node) if is_tensor(bench.recording, n)]
        same = [n for n in read if _last(bench, n) == count]
        if same:
            front += same
        elif any(_last(bench, n) * 2 == count or _last(bench, n) == 2 for n in read):
            return span_of(node)
        else:
            front += [n for n in operands(node) if not is_tensor(bench.recording, n)]
    return None


def repeat_span(
    bench: Bench, tables: tuple[Node, ...], length: int, first: int, second: int
) -> Span | None:
    """Return where positions `first` and `second` of `length` become alike, on the way to `tables`."""
    order = bench.dependence.order.__getitem__
    for node in sorted(bench.dependence.ancestors(tables), key=order):
        value = bench.recording.values.get(node)
        if not isinstance(value, Tensor) or node.op == "placeholder":
            continue
        if any(
            n == length and torch.equal(value.select(axis, first), value.select(axis, second))
            for axis, n in enumerate(value.shape)
        ):
            if node.op == "get_attr":
                declared = declared_at(bench.recording.module, _name(node))
                if declared is not None:
                    return declared
                continue
            return span_of(node)
    return None


def _last(bench: Bench, node: Node) -> int:
    value = bench.recording.values.get(node)
    return value.shape[-1] if isinstance(value, Tensor) and value.dim() else 0


def _name(node: Node) -> str:
    kinds = ("buffer", "constant", "parameter")
    return str(next((node.meta[k] for k in kinds if k in node.meta), node.target))


def _laid_out(declared: Span) -> Span:
    """Return the statement that spread the angles, behind the one that keeps the table."""
    around = _innermost(declared.path, declared.line)
    statement = _statement_at(around, declared.line) if around is not None else None
    if around is None or statement is None:
        return declared
    found = _followed(declared.path, around, statement, STEPS)
    return _span(declared.path, found) if found is not None else declared


def made_in(declared: Span) -> Span:
    """Return the ``return`` of the function in the same file that the statement at `declared` calls."""
    around = _innermost(declared.path, declared.line)
    statement = _statement_at(around, declared.line) if around is not None else None
    if statement is None:
        return declared
    for called in _functions(declared.path, _calls(statement)):
        returns = [s for s in ast.walk(called) if isinstance(s, ast.Return)]
        if called is not around and returns:
            return _span(declared.path, returns[-1])
    return declared


def _followed(path: str, around: Function, statement: ast.stmt, steps: int) -> ast.stmt | None:
    if _calls(statement) & LAYOUT:
        return statement
    if steps == 0:
        return None
    names = {
        n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    }
    earlier = [
        s for s in ast.walk(around)
        if isinstance(s, ast.Assign | ast.AnnAssign) and s.lineno < statement.lineno
        and _assigned(s) & names
    ]  # fmt: skip
    for one in sorted(earlier, key=lambda s: -s.lineno):
        found = _followed(path, around, one, steps - 1)
        if found is not None:
            return found
    for called in _functions(path, _calls(statement)):
        returns = [s for s in ast.walk(called) if isinstance(s, ast.Return)]
        if called is not around and returns:
            found = _followed(path, called, returns[-1], steps - 1)
            if found is not None:
                return found
    return None


def _calls(node: ast.AST) -> set[str]:
    called = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
    return {f.attr for f in called if isinstance(f, ast.Attribute)} | {
        f.id for f in called if isinstance(f, ast.Name)
    }


def _assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _functions(path: str, names: set[str]) -> list[Function]:
    found = [n for n in ast.walk(tree_of(path)) if isinstance(n, Function)]
    return [f for f in found if f.name in names]


def _innermost(path: str, line: int) -> Function | None:
    around = [f for f in functions_of(path) if f.lineno <= line <= (f.end_lineno or f.lineno)]
    return max(around, key=lambda f: f.lineno) if around else None


def _statement_at(function: Function, line: int) -> ast.stmt | None:
    simple = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)
    found = [
        s for s in ast.walk(function)
        if isinstance(s, simple) and s.lineno <= line <= (s.end_lineno or s.lineno)
    ]  # fmt: skip
    return found[0] if found else None


def _span(path: str, node: ast.stmt) -> Span:
    end = node.end_lineno or node.lineno
    return Span(path, node.lineno, node.col_offset + 1, end, (node.end_col_offset or 0) + 1)
