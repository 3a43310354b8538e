"""What is computed and then dropped: a norm that was called and whose result nothing reads."""

from __future__ import annotations

import ast

from torch import nn
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import functions_of
from mha_lint.facts.places import span_in_class, span_of
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, operands, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site

SAME = 1e-3
"""Relative: what doubling its input may change in a normalised tensor (an eps stands beside it)."""


def dropped_module(bench: Bench, owner: nn.Module, name: str) -> tuple[bool, Span | None]:
    """Return whether the module called `name` ran and nothing reads its results, and its call."""
    nodes = [
        n
        for n in bench.recording.graph.nodes
        if n.op == "call_function" and _inside(str(n.meta.get("module", "")), name)
    ]
    if not nodes or any(n in bench.dependence.live for n in nodes):
        return False, None
    return not handed_out(bench, owner, nodes), span_in_class(nodes[0], type(owner))


def handed_out(bench: Bench, owner: nn.Module, nodes: list[Node]) -> bool:
    """Return whether `owner` returns what is made of `nodes`: its caller drops it then, not it."""
    if owner is bench.recording.module:
        return False
    below = bench.dependence.descendants(nodes)
    ends = [n for n in below if not bench.dependence.users(n)]
    return any(_in_return(span_in_class(n, type(owner))) for n in ends)


def _in_return(span: Span | None) -> bool:
    """Return whether the statement at `span` returns, or binds a name that its function returns."""
    if span is None:
        return False
    for function in functions_of(span.path):
        if not function.lineno <= span.line <= (function.end_lineno or function.lineno):
            continue
        nodes = list(ast.walk(function))
        returns = [n for n in nodes if isinstance(n, ast.Return)]
        names = {n.id for r in returns for n in ast.walk(r) if isinstance(n, ast.Name)}
        for statement in (n for n in nodes if isinstance(n, ast.Return | ast.Assign)):
            if not statement.lineno <= span.line <= (statement.end_lineno or statement.lineno):
                continue
            bound = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and _stored(n)}
            if isinstance(statement, ast.Return) or bound & names:
                return True
    return False


def _stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _inside(module: str, name: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def dropped_copies(bench: Bench, sites: list[Site]) -> list[tuple[str, Span | None]]:
    """Return the normalised copies of an operand that nothing reads, or the layers that made them."""
    ends = _dead_ends(bench)
    found: dict[Node, tuple[str, Span | None]] = {}
    layers = bench.recording.modules
    for member in (m for s in sites for m in s.all) if ends else ():
        for name in "qkv":
            operand: Operand | None = getattr(member, name)
            if operand is None or operand.source is None or operand.source.kind == "learned":
                continue
            node = operand.source.node
            path = {node, *bench.dependence.between(node, operand.node)}
            for copy, left_at in ends.items():
                if left_at not in path or not _normalises(bench, left_at, copy):
                    continue
                made_by = str(copy.meta.get("module", ""))
                holder = layers.get(made_by.rpartition(".")[0])
                dropped = holder is not None and dropped_module(bench, holder, made_by)[0]
                told = made_by if dropped else f"the normalised copy of {name}"
                span = span_in_class(copy, type(holder)) if dropped else span_of(copy)
                found.setdefault(copy, (told, span))
    return list(found.values())


def _dead_ends(bench: Bench) -> dict[Node, Node]:
    """Return the ends of dead branches with the one live tensor of their shape that they leave at."""
    dep = bench.dependence
    found: dict[Node, Node] = {}
    for node in bench.recording.graph.nodes:
        if node in dep.live or dep.users(node) or not is_number(bench.recording, node):
            continue
        above = dep.ancestors([node])
        leaves = {n for one in above - dep.live for n in operands(one) if n in dep.live}
        data = [n for n in leaves if dep.on_data(n)]
        if len(data) != 1 or not is_number(bench.recording, data[0]):
            continue
        if shape(bench.recording, node) == shape(bench.recording, data[0]):
            found[node] = data[0]
    return found


def _normalises(bench: Bench, start: Node, end: Node) -> bool:
    base = bench.replay.base(end)
    (doubled,) = bench.replay.run([end], {start: 2 * bench.replay.base(start)})
    return bool((doubled - base).abs().max() < SAME * base.abs().max().clamp(min=1e-300))
