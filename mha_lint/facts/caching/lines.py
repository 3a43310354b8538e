"""The line at which a cached step takes a wrong position, or joins past and present wrongly.

Positions are numbers, made beside the data: recorded at two lengths of the past, and with one and
two new positions, their nodes tell what they follow. What follows the number of new positions where
it should follow the past is the place.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources, functions_of, tree_of
from mha_lint.facts.places import span_of
from mha_lint.model.source import Frame, Span
from mha_lint.sites.dependence import op, stack_of

JOINING = ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack")
WRITING = ("setitem", "index_copy", "index_put", "slice_scatter", "scatter", "copy")
TAKING = ("embedding", "index", "getitem", "narrow", "slice", "select", "index_select", "gather")
"""What takes rows of a learned table: which ones, is told beside the data."""
COUNTING = ("arange", "ones", "zeros", "full", "tril", "triu", "linspace")
LAYOUT = frozenset(
    {"view", "reshape", "transpose", "permute", "contiguous", "unsqueeze", "squeeze", "flatten"}
    | {"unflatten", "getitem", "index", "narrow", "slice", "expand", "repeat_interleave", "clone"}
    | {"movedim", "swapaxes", "to", "repeat", "split", "chunk", "unbind", "mT", "T", "getattr"}
)


def joining_line(bench: Bench, node: Node) -> Span | None:
    """Return the line that joins what was cached and what is new on the way to `node`."""
    above = bench.dependence.ancestors([node])
    for kinds in (JOINING, WRITING):
        found = [n for n in above if op(n) in kinds and span_of(n) is not None]
        mixed = [n for n in found if len(bench.dependence.inputs_of(n)) > 1] or found
        if mixed:
            return span_of(max(mixed, key=bench.dependence.order.__getitem__))
    return None


def returned_line(module: Any, place: str) -> Span | None:
    """Return the line that makes what a module's forward returns at `place` ("output[1]")."""
    match = re.search(r"\[(\d+)\]$", place)
    for source in class_sources(type(module)):
        for part in source.node.body:
            if not isinstance(part, ast.FunctionDef) or part.name != "forward":
                continue
            returns = [n for n in ast.walk(part) if isinstance(n, ast.Return) and n.value]
            if not returns:
                return None
            last: ast.stmt = max(returns, key=lambda n: n.lineno)
            value = last.value if isinstance(last, ast.Return) else None
            index = int(match.group(1)) if match else -1
            if isinstance(value, ast.Tuple) and 0 <= index < len(value.elts):
                element = value.elts[index]
                if isinstance(element, ast.Name):
                    made = [
                        s
                        for s in ast.walk(part)
                        if isinstance(s, ast.Assign) and _sets(s, element.id)
                    ]
                    last = max(made, key=lambda s: s.lineno, default=last)
            return _span(source.path, last)
    return None


def _span(path: str, node: ast.stmt) -> Span:
    end = node.end_lineno or node.lineno
    return Span(path, node.lineno, node.col_offset + 1, end, (node.end_col_offset or 0) + 1)


def rotated_after(bench: Bench, node: Node) -> Span | None:
    """Return the line that changes cached keys once more after they were joined with the new ones."""
    above = bench.dependence.ancestors([node])
    joins = [n for n in above if op(n) in JOINING and len(bench.dependence.inputs_of(n)) > 1]
    if not joins:
        return None
    last = min(joins, key=bench.dependence.order.__getitem__)
    for one in bench.dependence.between(last, node):
        if op(one) not in LAYOUT:
            frames = [f for f in stack_of(one) if f.function.split(".")[-1] == "forward"]
            return frames[-1].span if frames else span_of(one)
    return None


def position_line(step: Bench, shorter: Bench, wider: Bench, target: Node) -> Span | None:
    """Return the line that computes where the new position stands, on the way to `target`.

    `shorter`: the same step with one cached position less; `wider`: with one new position more.
    """
    nodes = _beside_data(step, target)
    less, more = partners(step, shorter), partners(step, wider)
    follows_new: list[Node] = []
    follows_past: list[Node] = []
    for node in nodes:
        past = _differs(step, node, shorter, less.get(node))
        new = _differs(step, node, wider, more.get(node))
        if past:
            follows_past.append(node)
        elif new or _starts_at_zero(step, node):
            follows_new.append(node)
    for node in [*follows_new, *follows_past]:
        if span_of(node) is not None:
            return _told_zero(step, node) or _source_of_numbers(node) or span_of(node)
    return None


def _told_zero(bench: Bench, node: Node) -> Span | None:
    """Return the call of a function that counts from a number that it is told, if it was told 0."""
    frames = stack_of(node)
    if len(frames) < 2:
        return None
    for user in bench.dependence.users(node):
        within = stack_of(user)[-1:] and stack_of(user)[-1].function == frames[-1].function
        numbers = [a for a in user.args if isinstance(a, int) and not isinstance(a, bool)]
        if within and op(user) in ("add", "radd", "__add__", "__radd__") and numbers == [0]:
            return frames[-2].span
    return None


def _beside_data(bench: Bench, target: Node) -> list[Node]:
    """Return what `target` is made of besides data and weights, where positions are computed."""
    above = bench.dependence.ancestors([target])
    found = []
    for node in above:
        if node.op != "call_function" or bench.dependence.on_data(node):
            continue
        if bench.dependence.parameters(node) and op(node) not in TAKING:
            continue
        value = bench.recording.values.get(node)
        if isinstance(value, Tensor) and span_of(node) is not None:
            found.append(node)
    return sorted(found, key=bench.dependence.order.__getitem__)


def hiding_line(bench: Bench, node: Node, wrong: list[int]) -> Span | None:
    """Return the line that first sets the keys `wrong` apart from others, on the way to `node`."""
    for one in _beside_data(bench, node):
        value = bench.recording.values[one]
        if value.dtype is not torch.bool or value.dim() < 1 or value.shape[-1] <= max(wrong):
            continue
        keys = value.reshape(-1, value.shape[-1])[-1]
        here = {bool(v) for v in keys[wrong]}
        if len(here) == 1 and bool((keys != keys[wrong[0]]).any()):
            return span_of(one)
    return None


def partners(one: Bench, other: Bench) -> dict[Node, Node]:
    """Return the node of `other` for each node of `one`: same operation, same line, same turn."""
    seen: Counter[tuple[object, ...]] = Counter()
    places: dict[tuple[object, ...], Node] = {}
    for node in other.recording.graph.nodes:
        key = (op(node), tuple(f.span for f in stack_of(node)))
        places[(*key, seen[key])] = node
        seen[key] += 1
    seen.clear()
    found: dict[Node, Node] = {}
    for node in one.recording.graph.nodes:
        key = (op(node), tuple(f.span for f in stack_of(node)))
        partner = places.get((*key, seen[key]))
        seen[key] += 1
        if partner is not None:
            found[node] = partner
    return found


def _differs(one: Bench, node: Node, other: Bench, partner: Node | None) -> bool:
    if partner is None or one is other:
        return False
    a, b = one.recording.values.get(node), other.recording.values.get(partner)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    return a.shape != b.shape or not torch.equal(a, b)


def _starts_at_zero(bench: Bench, node: Node) -> bool:
    """Return whether `node` counts from 0 for the one new position: arange(1), zeros(1)."""
    value = bench.recording.values.get(node)
    return (
        op(node) in ("arange", "zeros", "ones")
        and isinstance(value, Tensor)
        and max(value.shape, default=1) == 1
    )


def _source_of_numbers(node: Node) -> Span | None:
    """Return the assignment that the bounds of a slice or range take their start from."""
    frames = stack_of(node)
    if not frames:
        return None
    start = _start_expression(frames[-1].span, op(node))
    if start is not None:
        return _assigned(start, frames)
    return _count_of_caller(node, frames)


def _count_of_caller(node: Node, frames: tuple[Frame, ...]) -> Span | None:
    """Return the call that tells how many positions to count, where the function knows nothing else.

    A function that is told two lengths can put right itself where it starts.
    """
    function = _around(frames[-1].span)
    if op(node) != "arange" or function is None or len(frames) < 2:
        return None
    numbers: set[str] = set()
    counted = ""
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and call.args and _calls_any(call, COUNTING):
            names = [a.id for a in call.args if isinstance(a, ast.Name)]
            numbers |= set(names)
            if len(names) == 1 and _within(call, frames[-1].span):
                counted = names[0]
    parameters = {a.arg for a in function.args.args}
    if counted not in parameters or (numbers & parameters) - {counted}:
        return None
    return frames[-2].span


def _start_expression(span: Span, operation: str) -> ast.expr | None:
    """Return the expression at `span` that says where a slice or a range starts."""
    for node in ast.walk(tree_of(span.path)):
        if not isinstance(node, ast.expr) or not _within(node, span):
            continue
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            for part in parts:
                if isinstance(part, ast.Slice) and part.lower is not None:
                    return part.lower
                if isinstance(part, ast.Name):
                    return part
        if isinstance(node, ast.Call) and operation in ("arange", "narrow") and len(node.args) > 1:
            return node.args[0] if operation == "arange" else node.args[-2]
    return None


def _assigned(expression: ast.expr, frames: tuple[Frame, ...]) -> Span | None:
    """Return where the one name in `expression` gets its value, followed into the callers."""
    names = [n.id for n in ast.walk(expression) if isinstance(n, ast.Name) and n.id != "self"]
    depth = len(frames) - 1
    for name in names:
        found = _of_name(name, frames, depth)
        if found is not None:
            return found
    return None


def _of_name(name: str, frames: tuple[Frame, ...], depth: int) -> Span | None:
    span = frames[depth].span
    function = _around(span)
    if function is None:
        return None
    before = [
        s
        for s in ast.walk(function)
        if isinstance(s, ast.Assign | ast.AugAssign) and s.lineno <= span.line and _sets(s, name)
    ]
    if before:
        return _span(span.path, max(before, key=lambda s: s.lineno))
    places = [a.arg for a in function.args.args if a.arg != "self"]
    if name not in places or depth == 0:
        return None
    caller = frames[depth - 1].span
    for call in ast.walk(tree_of(caller.path)):
        if isinstance(call, ast.Call) and _within(call, caller) and _calls(call, function.name):
            given = _argument(call, places.index(name), name)
            if given is None:
                return None
            inner = [n.id for n in ast.walk(given) if isinstance(n, ast.Name) and n.id != "self"]
            for one in inner:
                found = _of_name(one, frames, depth - 1)
                if found is not None:
                    return found
            return caller
    return None


def _calls_any(call: ast.Call, names: tuple[str, ...]) -> bool:
    called = (
        call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    )
    return called in names


def _calls(call: ast.Call, name: str) -> bool:
    called = (
        call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    )
    return called == name or name == "forward"


def _argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[place] if place < len(call.args) else None


def _sets(statement: ast.Assign | ast.AugAssign, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    flat = [e for t in targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return any(isinstance(t, ast.Name) and t.id == name for t in flat)


def _around(span: Span) -> ast.FunctionDef | None:
    around = [
        f for f in functions_of(span.path) if f.lineno <= span.line <= (f.end_lineno or f.lineno)
    ]
    return max(around, key=lambda f: f.lineno) if around else None


def _within(node: ast.expr, span: Span) -> bool:
    """Return whether `node` lies inside of `span`."""
    start = (node.lineno, node.col_offset + 1)
    end = (node.end_lineno or node.lineno, (node.end_col_offset or 0) + 1)
    last = (span.end_line or span.line, span.end_column or 10_000)
    return (span.line, span.column) <= start and end <= last
