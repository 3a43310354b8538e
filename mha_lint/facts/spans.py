"""The places of a site in the user's source, by role."""

from __future__ import annotations

import ast
import re

from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import functions_of
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.output import OutputPath
from mha_lint.facts.places import hands_all_on, span_beside, span_of
from mha_lint.model.source import Span
from mha_lint.sites.dependence import stack_of
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site

QUERY_NAME = re.compile(
    r"(^|[._])(w?q|to_?q|q_?proj|w_?q|lin_?q|fc_?q|qry|que|query|queries)([._]|s?$)|query"
)
KEY_NAME = re.compile(r"(^|[._])(w?k|to_?kv?|k_?proj|w_?k|lin_?k|fc_?k|key|keys|kv)([._]|s?$)|key")


def site_spans(bench: Bench, site: Site, path: OutputPath, scale: Span | None) -> dict[str, Span]:
    """Return the places of `site`; see `mha_lint.model.facts.SiteInfo` for the roles."""
    first = site.all[0]
    score = first.score.node if first.score is not None else first.normaliser.logits
    normaliser = first.normaliser
    given: dict[str, Span | None] = {
        "site": span_of(first.context),
        "scores": span_of(score),
        "scale": scale,
        "softmax": span_of(normaliser.weights) if normaliser.element is not None else None,
        "value": span_of(first.context),
        "merge": span_of(path.merged),
        "output": span_of(path.map.call) if path.map is not None else None,
        "repeated": span_of(normaliser.later[-1]) if normaliser.later else None,
        "value_path": _leaves(bench, first, "v", ("k", "q")),
        "q_path": _leaves(bench, first, "q", ("k",)),
        "exchange": _other_than(span_of(first.context), span_beside(first.context, first.v.node)),
        "call": _outer_call(first),
        "overwrite": _overwritten_at(site, path),
    }
    if normaliser.weights.meta.get("module_class") in ("Softmax", "Softmax2d", "LogSoftmax"):
        # The axis was chosen where the layer was made.
        declared = declared_at(bench.recording.module, str(normaliser.weights.meta["module"]))
        given["softmax"] = declared or given["softmax"]
    if _crossed(first):
        # What is summed is called a query, so the sum is at fault and not the softmax.
        given["softmax_fault"] = span_of(first.context)
    calls = {
        name: operand.source.call
        for name in "qkv"
        if (operand := getattr(first, name)) is not None and operand.source is not None
    }
    for name, node in calls.items():
        given[name] = own_line(node, [n for o, n in calls.items() if o != name])
    return {k: v for k, v in given.items() if v is not None}


def _other_than(usual: Span | None, span: Span | None) -> Span | None:
    return span if span != usual else None


def _overwritten_at(site: Site, path: OutputPath) -> Span | None:
    """Return where the input of a loop's second head was made, in the function that joins the heads."""
    q = site.members[1].q if len(site.members) > 1 else None
    return span_beside(q.source.reads, path.merged) if q is not None and q.source else None


def _crossed(site: Site) -> bool:
    """Return whether, by their projections' names, the rows are keys and the columns queries."""
    names: list[str] = []
    for operand in (site.q, site.k):
        if operand is None or operand.source is None or not operand.source.parameters:
            return False
        names.append(operand.source.parameters[0].removesuffix(".weight").lower())
    rows, columns = names
    return bool(KEY_NAME.search(rows) and QUERY_NAME.search(columns)) and rows != columns


def _outer_call(site: Site) -> Span | None:
    """Return the line that calls the module of the site, where that is not the subject itself.

    A function that never reads one of its parameters is where something is not passed on.
    """
    stack = [f for f in stack_of(site.context) if not hands_all_on(f.span)]
    forwards = [f for f in stack if f.function.split(".")[-1] == "forward"]
    if len(forwards) < 2:
        return None
    deaf = [f.span for f in forwards[:-1] if _ignores_a_parameter(f.span)]
    if not deaf and _ignores_a_parameter(forwards[-1].span):
        return None  # it is passed on as far as the function that holds the site
    return deaf[-1] if deaf else stack[0].span


def _ignores_a_parameter(at: Span) -> bool:
    """Return whether the function around a line has a parameter that it never reads."""
    around = [f for f in functions_of(at.path) if f.lineno <= at.line <= (f.end_lineno or f.lineno)]
    if not around:
        return False
    function = max(around, key=lambda f: f.lineno)
    arguments = function.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    read = {
        n.id
        for statement in function.body
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    }
    return bool(names - read - {"self"})


def _leaves(bench: Bench, site: Site, which: str, others: tuple[str, ...]) -> Span | None:
    """Return where an operand leaves the way of another one whose projection it shares.

    Where it never does (one tensor in two places) the contraction that takes it is the place.
    """
    operand: Operand | None = getattr(site, which)
    between = bench.dependence.between
    best: tuple[list[Node], set[Span]] | None = None
    for name in others:
        other: Operand | None = getattr(site, name)
        if other is None or operand is None or other.source is None or operand.source is None:
            continue
        if operand.source.node is not other.source.node:
            continue
        path = [other.node, *between(other.source.node, other.node)]
        taken = {n for n in path if "lowered" not in n.meta}
        own = [
            n for n in between(operand.source.node, operand.node)
            if n not in taken and "lowered" not in n.meta
        ]  # fmt: skip
        spans = {f.span for n in path for f in stack_of(n)}
        if best is None or len(own) < len(best[0]):
            best = (own, spans)
    if best is None:
        return None
    own, spans = best
    if not own:
        return span_of(site.context) if which == "v" else span_of(site.scores)
    for frame in stack_of(own[0]):
        if frame.span not in spans:
            return frame.span
    return span_of(own[0])


def own_line(node: Node, others: list[Node]) -> Span | None:
    """Return the innermost line that made `node` and none of `others`: helpers serve all operands."""
    taken = [{f.span for f in stack_of(n)} for n in others if n is not node]
    for frame in reversed(stack_of(node)):
        if not any(frame.span in spans for spans in taken):
            return frame.span
    return span_of(node)
