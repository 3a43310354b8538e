"""What lies idle: inputs, declared layers, dropouts; and widths that heads do not divide."""

from __future__ import annotations

import ast
import math
from typing import Any

from torch import nn
from torch.fx import Node

from mha_lint.facts.arguments import reads_a_source
from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.places import keyword_span, span_of
from mha_lint.model.facts import (
    Dims,
    DropoutUse,
    Fact,
    Known,
    NotApplicable,
    Truncation,
    UnusedInput,
)
from mha_lint.model.source import Span
from mha_lint.sites.dependence import op, shape
from mha_lint.sites.site import Site

SOURCE_NAMES = frozenset(
    [
        "x",
        "tgt",
        "target",
        "query",
        "queries",
        "memory",
        "mem",
        "context",
        "ctx",
        "encoder",
        "enc",
        "encoded",
        "encoder_output",
        "encoder_out",
        "encoder_outputs",
        "enc_out",
        "enc_output",
        "encoder_hidden_states",
        "source",
        "src",
        "kv",
        "key",
        "keys",
        "value",
        "values",
        "k",
        "v",
        "cross",
        "cond",
        "condition",
        "text",
        "image",
        "other",
        "key_value",
        "key_value_states",
        "states_b",
        "hidden_b",
        "y",
        "z",
    ]
)


def dropout_uses(bench: Bench, site: Site) -> tuple[DropoutUse, ...]:
    """Return the dropouts on scores, weights and context of `site`, active ones and idle ones."""
    found: list[DropoutUse] = []
    for member in site.all[:1]:
        for place, start, end in (
            ("scores", member.scores, member.normaliser.logits),
            ("weights", member.normaliser.weights, member.weights),
        ):
            if member.normaliser.element is None:
                place = "weights"  # without a normaliser the scores are the weights
            nodes = bench.dependence.between(start, end) if start is not end else []
            found += [_use(n, place) for n in nodes if op(n) == "dropout"]
    return tuple(found)


def _use(node: Node, place: str) -> DropoutUse:
    rate = node.kwargs.get("p", 0.5)
    active = bool(node.kwargs.get("training", True))
    return DropoutUse(
        place,
        float(rate) if isinstance(rate, int | float) else 0.5,
        active,
        keyword_span(span_of(node), "dropout_p") or span_of(node),
    )


def all_dropouts(bench: Bench, sites: list[Site], *, in_eval: bool) -> Fact[tuple[DropoutUse, ...]]:
    """Return every dropout of the recording with its place."""
    if not in_eval:
        return NotApplicable("the module does not know eval mode")
    places: dict[Node, str] = {}
    for site in sites:
        for member in site.all:
            for place, start, end in (
                ("scores", member.scores, member.normaliser.logits),
                ("weights", member.normaliser.weights, member.weights),
            ):
                if start is not end:
                    places |= dict.fromkeys(bench.dependence.between(start, end), place)
    found = [
        _use(n, places.get(n, "output"))
        for n in bench.recording.graph.nodes
        if n.op == "call_function" and op(n) == "dropout" and n in bench.dependence.live
    ]
    return Known(tuple(found), "recorded in eval mode")


def unused_inputs(bench: Bench, sites: list[Site]) -> Fact[tuple[UnusedInput, ...]]:
    """Return the tensor arguments that no output depends on."""
    found: list[UnusedInput] = []
    widths = {
        tuple(v.shape)[-1]
        for p, v in zip(bench.recording.placeholders, bench.recording.inputs, strict=True)
        if p in bench.dependence.live and v.dim() >= 3 and v.is_floating_point()
    }
    for placeholder, value, name in zip(
        bench.recording.placeholders,
        bench.recording.inputs,
        bench.recording.input_names,
        strict=True,
    ):
        if placeholder in bench.dependence.live:
            continue
        stem = name.lower().rstrip("s_0123456789")
        source = value.is_floating_point() and value.dim() >= 3
        parts = set(name.lower().replace("[", "_").split("_"))
        named = bool((parts | {stem, name.lower()}) & SOURCE_NAMES) or any(
            reads_a_source(str(m.context.meta.get("module", ""))) for x in sites for m in x.all
        )
        found.append(
            UnusedInput(
                name,
                tuple(value.shape),
                source and named and (not widths or value.shape[-1] in widths or value.dim() == 3),
            )
        )
    return Known(tuple(found), "no output depends on it in the recorded graph")


def unused_modules(bench: Bench, sites: list[Site]) -> Fact[tuple[tuple[str, Span | None], ...]]:
    """Return layers of the classes that hold a site which nothing reads.

    Reported are those whose result is computed and then dropped, and those that the class never
    names outside the constructor; a layer of a branch that did not run is neither.
    """
    module = bench.recording.module
    if not isinstance(module, nn.Module):
        return NotApplicable("a function declares no layers")
    live = {n.meta.get("parameter") for n in bench.dependence.live}
    computed = {n.meta["parameter"] for n in bench.recording.graph.nodes if n.meta.get("parameter")}
    owners = {str(m.context.meta.get("module", "")) for s in sites for m in s.all}
    names = dict(module.named_modules())
    found: list[tuple[str, Span | None]] = []
    for owner_name in sorted(owners):
        owner = names.get(owner_name)
        if owner is None or type(owner).__module__.startswith("torch."):
            continue
        text = _without_constructor(type(owner))
        for child_name, child in owner.named_children():
            full = f"{owner_name}.{child_name}" if owner_name else child_name
            kind = isinstance(child, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Dropout | nn.Bilinear)
            if not kind:
                continue
            weights = [f"{full}.{n}" for n, p in child.named_parameters() if p.dim() >= 2]
            if weights and any(w in live for w in weights):
                continue
            if isinstance(child, nn.Dropout) and child.p == 0:
                continue
            dropped = bool(weights) and any(w in computed for w in weights)
            calls = [
                n for n in bench.recording.graph.nodes
                if op(n) == "dropout" and n.meta.get("module") == full
            ]  # fmt: skip
            if calls and not any(n in bench.dependence.live for n in calls):
                found.append((full, span_of(calls[0])))
                continue
            never = child_name not in text and "getattr(self" not in text
            if dropped or never:
                span = _dead_call(bench, weights) if dropped else declared_at(module, full)
                found.append((full, span))
    return Known(tuple(found), "no output depends on them")


def _dead_call(bench: Bench, weights: list[str]) -> Span | None:
    for node in bench.recording.graph.nodes:
        if node.op == "call_function" and any(
            n.meta.get("parameter") in weights for n in node.all_input_nodes
        ):
            return span_of(node)
    return None


def _without_constructor(cls: type) -> str:
    """Return the source of `cls` and its bases without ``__init__``."""
    sources = class_sources(cls)
    if not sources:
        return "getattr(self"  # cannot be read: nothing can be said
    out: list[str] = []
    for source in sources:
        out += [ast.unparse(b) for b in source.node.body if getattr(b, "name", "") != "__init__"]
    return "\n".join(out)


def measure_truncation(
    bench: Bench, sites: list[Site], dims: list[Fact[Dims]], stated: dict[str, int]
) -> Fact[Truncation | None]:
    """Return the channels that are lost because the head count does not divide the width."""
    for site, fact in zip(sites, dims, strict=True):
        first = site.all[0]
        narrow = _narrow_head(bench, site)
        if narrow is not None:
            return Known(narrow, f"the heads are {narrow.how}")
        if not isinstance(fact, Known) or first.q is None or first.q.source is None:
            continue
        at, source = fact.value, first.q.source
        if source.kind != "projection" or at.num_heads < 2:
            continue
        width, kept = at.d_model, at.num_heads * at.head_dim
        if width % at.num_heads == 0 or kept != at.num_heads * (width // at.num_heads):
            continue
        if at.head_dim in stated.values():
            continue  # a head width of its own
        valid = tuple(n for n in range(1, width + 1) if width % n == 0)
        span = _floor_division(bench, site) or span_of(source.call)
        return Known(
            Truncation(width, at.num_heads, kept, width - kept, valid, "floor division", span),
            f"W_q maps {width} channels to {kept} = {at.num_heads} * ({width} // {at.num_heads})",
        )
    return Known(None, "every width is a multiple of its head count")


def _narrow_head(bench: Bench, site: Site) -> Truncation | None:
    """Return the truncation where the heads of a loop have different widths."""
    widths: list[int] = []
    for member in site.members:
        if member.q is None:
            return None
        sizes = shape(bench.recording, member.q.node)
        widths.append(math.prod(sizes[a] for a in member.q.features))
    if len(set(widths)) < 2:
        return None
    total = sum(widths)
    q = site.all[0].q
    asked = _asked_heads(bench, site) or len(widths)
    valid = tuple(n for n in range(1, total + 1) if total % n == 0)
    listed = ", ".join(str(w) for w in widths)
    span = _first_split(bench, site) or (
        span_of(q.source.call) if q is not None and q.source else None
    )
    return Truncation(total, asked, total, total % asked, valid, f"{listed} channels wide", span)


def _asked_heads(bench: Bench, site: Site) -> int | None:
    """Return how many parts the split was asked for: ``torch.chunk(x, 7)`` may give fewer."""
    q = site.all[0].q
    if q is None or q.source is None:
        return None
    for node in bench.dependence.between(q.source.node, q.node):
        if op(node) == "chunk" and len(node.args) > 1 and isinstance(node.args[1], int):
            return node.args[1]
    return None


def _first_split(bench: Bench, site: Site) -> Span | None:
    q = site.all[0].q
    if q is None or q.source is None:
        return None
    for node in bench.dependence.between(q.source.node, q.node):
        if op(node) in ("chunk", "split", "tensor_split", "index", "narrow"):
            return span_of(node)
    return None


def _floor_division(bench: Bench, site: Site) -> Span | None:
    """Return the constructor's line that divides with //."""
    module = bench.recording.module
    if module is None:
        return None
    owner: Any = dict(module.named_modules()).get(str(site.context.meta.get("module", "")), module)
    for source in class_sources(type(owner)):
        for node in ast.walk(source.node):
            if isinstance(node, ast.BinOp | ast.Call) and _rounds_down(node):
                end = node.end_lineno or node.lineno
                return Span(
                    source.path,
                    node.lineno,
                    node.col_offset + 1,
                    end,
                    (node.end_col_offset or 0) + 1,
                )
    return None


def _rounds_down(node: ast.BinOp | ast.Call) -> bool:
    """Return whether `node` is ``a // b``, ``int(a / b)`` or ``math.floor(a / b)``."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.FloorDiv)
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    inner = node.args[0] if node.args else None
    return (
        name in ("int", "floor") and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div)
    )


def is_deterministic(bench: Bench) -> Fact[bool]:
    """Return whether no live operation draws random numbers."""
    random = [
        n for n in bench.dependence.live
        if op(n) in ("rand", "randn", "bernoulli", "multinomial", "normal", "rand_like", "randn_like")
        or (op(n) == "dropout" and n.kwargs.get("training", True) and n.kwargs.get("p", 0.5))
    ]  # fmt: skip
    return Known(not random, "recorded in eval mode")
