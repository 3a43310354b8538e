"""Where a mask was made, from what, and where its fill is written."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import functions_of, tree_of
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.places import span_of
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_tensor, op, operands

PASSING = frozenset(
    {"view", "reshape", "unsqueeze", "squeeze", "expand", "repeat", "transpose", "permute"}
    | {"flatten", "unflatten", "index", "getitem", "narrow", "select", "contiguous", "clone"}
    | {"to", "logical_not", "bitwise_not", "detach", "repeat_interleave", "expand_as", "tile"}
    | {"broadcast_to", "type_as", "view_as", "neg", "unfold", "movedim", "slice"}
)
"""What changes layout, type or polarity of a mask, and leaves its pattern."""
NUMERIC = frozenset(["mul", "sub", "add", "rsub", "div", "masked_fill", "where", "log"])
"""What turns a pattern into numbers, when its other operands are constants."""


def inputs_of(bench: Bench, sides: tuple[Node, ...]) -> tuple[str, ...]:
    """Return the names of the arguments that the mask depends on."""
    return tuple(sorted({name for s in sides for name in bench.dependence.inputs_of(s)}))


def buffers_of(bench: Bench, sides: tuple[Node, ...]) -> tuple[str, ...]:
    """Return the names of the buffers that the mask depends on."""
    above = bench.dependence.ancestors(sides)
    return tuple(sorted({str(n.meta["buffer"]) for n in above if "buffer" in n.meta}))


def made_at(bench: Bench, side: Node) -> Span | None:
    """Return where the pattern of a mask was made, None for an argument as it came."""
    node = pattern_of(bench, side)
    if node.op == "placeholder":
        return None
    if "buffer" in node.meta and bench.recording.module is not None:
        return declared_at(bench.recording.module, str(node.meta["buffer"])) or span_of(side)
    return span_of(node)


def pattern_of(bench: Bench, side: Node) -> Node:
    """Return the node behind layout, casts, negations and factors: where the pattern was made."""
    node = side
    while op(node) in PASSING | NUMERIC:
        tensors = [n for n in operands(node) if is_tensor(bench.recording, n)]
        larger = [n for n in tensors if bench.recording.values[n].numel() > 1]
        varying = [n for n in larger or tensors if not _is_constant(bench, n)]
        if len(varying) != 1:
            break
        node = varying[0]
    return node


def _is_constant(bench: Bench, node: Node) -> bool:
    value = bench.recording.values[node].reshape(-1)
    return bool(value.numel()) and node.op != "placeholder" and bool((value == value[0]).all())


def fill_at(bench: Bench, node: Node, sides: tuple[Node, ...], fill: float) -> Span | None:
    """Return where the number `fill` stands: in `node` or above its `sides`, or where it is named."""
    above = bench.dependence.ancestors(sides)
    order = bench.dependence.order
    for one in (node, *sorted(above, key=order.__getitem__, reverse=True)):
        if any(_close(abs(n), abs(fill)) for n in _numbers((*one.args, *one.kwargs.values()))):
            span = span_of(one)
            return _named_at(span, fill) or span
    return None


def _numbers(values: tuple[object, ...]) -> Iterator[float]:
    for value in values:
        if isinstance(value, float | int) and not isinstance(value, bool):
            yield float(value)


def _close(one: float, other: float) -> bool:
    return one == other or (math.isfinite(one) and math.isclose(one, other, rel_tol=1e-6))


def _named_at(span: Span | None, fill: float) -> Span | None:
    """Return the assignment of a name that stands at `span` for the number `fill`, if it is one."""
    if span is None:
        return None
    tree = tree_of(span.path)
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and _within(node, span):
            used.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif (
            isinstance(node, ast.Constant)
            and _within(node, span)
            and _close(abs(_literal(node)), abs(fill))
        ):
            return None  # it stands there itself
    function = max(
        (f for f in functions_of(span.path) if f.lineno <= span.line <= (f.end_lineno or 0)),
        key=lambda f: f.lineno,
        default=None,
    )
    for holder in (function, tree):
        for node in ast.walk(holder) if holder is not None else ():
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {
                    t.id if isinstance(t, ast.Name) else t.attr
                    for t in targets
                    if isinstance(t, ast.Name | ast.Attribute)
                }
                if names & used and _close(abs(_literal(node.value)), abs(fill)):
                    end = node.end_lineno or node.lineno
                    column = (node.end_col_offset or 0) + 1
                    return Span(span.path, node.lineno, node.col_offset + 1, end, column)
    return None


def _within(node: ast.expr, span: Span) -> bool:
    return span.line <= node.lineno <= max(span.end_line, span.line)


def _literal(node: ast.expr) -> float:
    """Return the number that an expression spells out, NaN for all else."""
    try:
        return float(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError):
        pass
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_literal(node.operand)
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        try:
            value = ast.literal_eval(node.args[0])  # float("-inf"), torch.tensor(-1e9)
            whole = isinstance(value, int) and value >= 0  # as of x.size(0), whatever that gives
            return math.nan if whole else float(value)
        except (ValueError, TypeError, SyntaxError):
            return math.nan
    return math.nan
