"""What lies idle: inputs, declared layers, dropouts."""

from __future__ import annotations

import ast
from collections.abc import Collection

from torch import nn
from torch.fx import Node

from mha_lint.facts.arguments import reads_a_source
from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.dropped import dropped_copies, dropped_module, handed_out
from mha_lint.facts.places import keyword_span, span_of
from mha_lint.facts.untaken import read_where_not_run
from mha_lint.model.facts import (
    DropoutUse,
    Fact,
    Known,
    NotApplicable,
    UnusedInput,
)
from mha_lint.model.source import Span
from mha_lint.sites.dependence import OPAQUE_LEARNED, is_number, op, operands, shape
from mha_lint.sites.site import Site

ENCODED = 2
"""Learned layers in a row, or an attention, make an encoder; one alone may be an embedding."""
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


def unused_inputs(
    bench: Bench, sites: list[Site], *, guessed: bool = False
) -> Fact[tuple[UnusedInput, ...]]:
    """Return the tensor arguments that no output depends on.

    ``guessed``: the call was made up, and may give an argument that its settings leave unread.
    """
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
        states = value.is_floating_point() or _are_looked_up(placeholder)
        encoded = states and _encoded(bench, sites, placeholder)
        source &= not (guessed and read_where_not_run(bench, name))
        fits = not widths or value.dim() == 3 or tuple(value.shape)[-1:] in {(w,) for w in widths}
        found.append(
            UnusedInput(name, tuple(value.shape), encoded or (source and named and fits), encoded)
        )
    return Known(tuple(found), "no output depends on it in the recorded graph")


def _are_looked_up(placeholder: Node) -> bool:
    """Return whether a table is read at the numbers of `placeholder`: they are tokens."""
    waiting = list(placeholder.users)
    while waiting:
        node = waiting.pop()
        if op(node) == "embedding":
            return True
        if op(node) in ("view", "reshape", "to", "long", "clamp", "flatten", "contiguous"):
            waiting += node.users
    return False


def _encoded(bench: Bench, sites: list[Site], placeholder: Node) -> bool:
    """Return whether the call computes states from an input that nothing reads: an encoder ran.

    They are as wide as what an attention makes its keys from, so that it could have read them.
    """
    below = bench.dependence.descendants([placeholder])
    sources = bench.finder.sources
    maps = [n for n in below if sources.learned_map(n) is not None or op(n) in OPAQUE_LEARNED]
    alone = [n for n in below if sources.is_mixing(n) and _of_its_own(bench, n, below)]
    if len(maps) < ENCODED and not alone:
        return False
    keys = [m.k.source for s in sites for m in s.all if m.k is not None and m.k.source is not None]
    widths = {source.in_width for source in keys}
    sized = [shape(bench.recording, n) for n in below if is_number(bench.recording, n)]
    return any(len(sizes) >= 3 and sizes[-1] in widths for sizes in sized)


def _of_its_own(bench: Bench, node: Node, below: Collection[Node]) -> bool:
    """Return whether all data that `node` contracts comes from one input: it attends to itself."""
    return all(n in below for n in operands(node) if bench.dependence.on_data(n))


def unused_modules(bench: Bench, sites: list[Site]) -> Fact[tuple[tuple[str, Span | None], ...]]:
    """Return layers of the classes that hold a site which nothing reads.

    Reported are those whose result is computed and then dropped, and those that the class never
    names outside the constructor; a layer of a branch that did not run is neither.
    """
    module = bench.recording.module
    if not isinstance(module, nn.Module):
        return NotApplicable("a function declares no layers")
    live = bench.dependence.live_parameters
    owners = {str(m.context.meta.get("module", "")) for s in sites for m in s.all}
    names = bench.recording.modules
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
                dropped, span = dropped_module(bench, owner, full)
                if dropped and next(child.parameters(), None) is not None:
                    found.append((full, span))
                continue
            weights = [f"{full}.{n}" for n, p in child.named_parameters() if p.dim() >= 2]
            if weights and any(w in live for w in weights):
                continue
            if isinstance(child, nn.Dropout) and child.p == 0:
                continue
            made = [n for n in bench.recording.graph.nodes if n.meta.get("parameter") in weights]
            dropped = bool(made) and not handed_out(bench, owner, made)
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
    told = {name for name, _ in found}
    found += [copy for copy in dropped_copies(bench, sites) if copy[0] not in told]
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


def is_deterministic(bench: Bench) -> Fact[bool]:
    """Return whether no live operation draws random numbers."""
    random = [
        n for n in bench.dependence.live
        if op(n) in ("rand", "randn", "bernoulli", "multinomial", "normal", "rand_like", "randn_like")
        or (op(n) == "dropout" and n.kwargs.get("training", True) and n.kwargs.get("p", 0.5))
    ]  # fmt: skip
    return Known(not random, "recorded in eval mode")
