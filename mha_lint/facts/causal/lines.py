"""The line that draws a mask: where its triangle is made, or where a ready one is cut."""

from __future__ import annotations

import ast

from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import functions_of, tree_of
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.masks.steps import steps_of
from mha_lint.facts.places import keyword_span, span_of
from mha_lint.model.source import Span
from mha_lint.sites.dependence import op, operands
from mha_lint.sites.site import Site

TRIANGLES = ("tril", "triu", "tril_indices", "triu_indices")
COMPARED = ("lt", "le", "gt", "ge")
CUTS = ("getitem", "__getitem__", "index", "slice", "narrow", "index_select")
_MADE_BY = ("tril", "triu", "tril_indices", "triu_indices", "arange")


def mask_nodes(bench: Bench, site: Site) -> list[Node]:
    """Return the nodes that the masks of `site` are made of, in recorded order: no data, no scores."""
    steps = [s for s in steps_of(bench, site) if s.fills or s.adds or s.multiplies]
    ends = [n for s in steps or steps_of(bench, site) for n in s.sides]
    above = bench.dependence.ancestors([*ends, *_added_within(site)])
    scored = bench.dependence.descendants([site.scores])
    return sorted((n for n in above if n not in scored), key=bench.dependence.order.__getitem__)


def _added_within(site: Site) -> list[Node]:
    """Return what the score contraction itself adds (``baddbmm``)."""
    score = site.score
    if score is None:
        return []
    return [n for n in operands(score.node) if n not in (score.left, score.right)]


def is_given(bench: Bench, site: Site) -> bool:
    """Return whether a mask of `site` comes from an argument of the call other than its data."""
    ends = [n for s in steps_of(bench, site) if s.before for n in s.sides]
    above = bench.dependence.ancestors([*ends, *_added_within(site)])
    arguments = set(bench.recording.placeholders) & above
    read = [o.node for o in (site.q, site.k) if o is not None]
    return bool(arguments - bench.dependence.ancestors(read))


def may_be_given(bench: Bench, site: Site) -> bool:
    """Return whether a mask that comes from the caller can tell queries apart, by its shape.

    One of keys alone, (B, T_k) or lengths, cannot hide the future: that is left to the code.
    """
    ends = [n for s in steps_of(bench, site) if s.before for n in s.sides]
    above = bench.dependence.ancestors([*ends, *_added_within(site)])
    read = [o.node for o in (site.q, site.k) if o is not None]
    arguments = (set(bench.recording.placeholders) & above) - bench.dependence.ancestors(read)
    values = [bench.recording.values.get(n) for n in arguments]
    sizes = bench.recording.values[site.scores].shape
    pairs = {(sizes[q], sizes[k]) for q in site.row_axes for k in site.key_axes}
    return any(
        not isinstance(v, Tensor) or any(_has_pair(v, q, k) for q, k in pairs) for v in values
    )


def _has_pair(value: Tensor, queries: int, keys: int) -> bool:
    """Return whether two axes of `value` may be those of queries and keys."""
    sizes = list(value.shape)
    if queries in sizes:
        sizes.remove(queries)
        return keys in sizes
    return False


def has_idle_mask(bench: Bench, site: Site) -> bool:
    """Return whether something is joined with the scores that changes none of them."""
    return any(s.before and not (s.fills or s.adds or s.multiplies) for s in steps_of(bench, site))


def triangle_line(bench: Bench, site: Site) -> Span | None:
    """Return the line that decides on which side of the diagonal the mask of `site` begins."""
    nodes = mask_nodes(bench, site)
    for kinds in (TRIANGLES, COMPARED):
        drawn = [
            n for n in nodes if op(n) in kinds and span_of(n) is not None and not _is_flag(bench, n)
        ]
        # One that compares lengths (padding) tells no query from another.
        drawn.sort(key=lambda n: not _tells_queries_apart(bench, n))
        if drawn:
            return at_keyword(span_of(drawn[0]))
    for node in nodes:
        if node.op == "get_attr" and (declared := _declared(bench, node)) is not None:
            return declared
    return step_line(bench, site)


def cut_line(bench: Bench, site: Site) -> Span | None:
    """Return the line that chooses which rows of a mask are used."""
    nodes = mask_nodes(bench, site)
    ready = [n for n in nodes if n.op == "get_attr"]
    if ready:
        after = bench.dependence.descendants(ready)
        for node in nodes:
            if node in after and op(node) in CUTS and span_of(node) is not None:
                return span_of(node)
    for node in nodes:
        if op(node) in TRIANGLES and span_of(node) is not None:
            return at_keyword(span_of(node))
    counted = [n for n in nodes if op(n) == "arange" and span_of(n) is not None]
    rows = bench.recording.values[site.scores].shape[site.row_axes[0]] if site.row_axes else 0
    for node in counted:
        value = bench.recording.values[node]
        if isinstance(value, Tensor) and value.numel() == rows and int(value.min()) == 0:
            return span_of(node)
    for node in nodes:
        if op(node) in COMPARED and span_of(node) is not None:
            return span_of(node)
    return step_line(bench, site)


def at_keyword(span: Span | None) -> Span | None:
    """Return the line of ``is_causal=`` where a call over several lines passes it, else `span`."""
    return keyword_span(span, "is_causal") or span


def says_is_causal(span: Span | None) -> bool:
    """Return whether the call at `span`, or the argument there, is one of ``is_causal``."""
    if span is None:
        return False
    lines = range(span.line, max(span.line, span.end_line) + 1)
    return any(
        keyword.arg == "is_causal" and {node.lineno, keyword.value.lineno} & set(lines)
        for node in ast.walk(tree_of(span.path))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
    )


def step_line(bench: Bench, site: Site) -> Span | None:
    """Return the line of the operation that applies the mask to the scores."""
    for step in steps_of(bench, site):
        if (step.fills or step.adds or step.multiplies) and span_of(step.node) is not None:
            return span_of(step.node)
    return None


def _is_flag(bench: Bench, node: Node) -> bool:
    value = bench.recording.values.get(node)
    return not isinstance(value, Tensor) or value.dim() < 2


def _tells_queries_apart(bench: Bench, node: Node) -> bool:
    """Return whether `node` holds a square, or more, whose rows differ."""
    value = bench.recording.values.get(node)
    if not isinstance(value, Tensor) or value.dim() < 2 or value.shape[-2] != value.shape[-1]:
        return False
    return bool((value != value[..., :1, :]).any())


def tells_queries_apart(bench: Bench, site: Site, node: Node) -> bool:
    """Return whether `node` holds a row of keys for each query of `site`, and rows that differ."""
    value = bench.recording.values.get(node)
    if not isinstance(value, Tensor) or value.dim() < 2:
        return False
    sizes = bench.recording.values[site.scores].shape
    pairs = {(sizes[q], sizes[k]) for q in site.row_axes for k in site.key_axes}
    return tuple(value.shape[-2:]) in pairs and bool((value != value[..., :1, :]).any())


def _declared(bench: Bench, node: Node) -> Span | None:
    """Return the line of the constructor that draws the buffer or constant `node`."""
    name = str(node.meta.get("buffer") or node.meta.get("constant") or "")
    declared = declared_at(bench.recording.module, name) if name else None
    if declared is None:
        return None
    return _drawn_before(declared) or declared


def _drawn_before(declared: Span) -> Span | None:
    """Return the assignment that draws what `declared` only stores, None where it draws it itself."""
    around = [f for f in functions_of(declared.path) if _holds(f, declared.line)]
    if not around:
        return None
    function = max(around, key=lambda f: f.lineno)
    statements = [n for n in ast.walk(function) if isinstance(n, ast.stmt)]
    stored = next((s for s in statements if s.lineno == declared.line), None)
    while stored is not None and not _draws(stored):
        names = {n.id for n in ast.walk(stored) if isinstance(n, ast.Name)}
        before = [
            s
            for s in statements
            if isinstance(s, ast.Assign)
            and s.lineno < stored.lineno
            and any(isinstance(t, ast.Name) and t.id in names for t in s.targets)
        ]
        stored = max(before, key=lambda s: s.lineno, default=None)
        if stored is not None and _draws(stored):
            end = stored.end_lineno or stored.lineno
            column = (stored.end_col_offset or 0) + 1
            return Span(declared.path, stored.lineno, stored.col_offset + 1, end, column)
    return None


def _holds(function: ast.FunctionDef, line: int) -> bool:
    return function.lineno <= line <= (function.end_lineno or function.lineno)


def _draws(statement: ast.stmt) -> bool:
    calls = [n.func for n in ast.walk(statement) if isinstance(n, ast.Call)]
    named = {f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "") for f in calls}
    compares = any(isinstance(n, ast.Compare) for n in ast.walk(statement))
    return bool(named & set(_MADE_BY)) or compares
