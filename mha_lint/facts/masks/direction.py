"""Causal triangles where every key should be visible: over another sequence, and in encoders."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from mha_lint.facts.arguments import reads_a_source
from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources
from mha_lint.facts.influence import MOVE, Entry, reached
from mha_lint.facts.masks.held import entries_of, in_order, rows_of
from mha_lint.facts.masks.joins import apart, call_line, join_of, line_of_its_own, triangle_node
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.patterns import Pattern, pattern_at
from mha_lint.facts.masks.roots import mask_closure
from mha_lint.facts.masks.streams import is_source_name
from mha_lint.facts.masks.words import (
    is_in_time,
    owner_classes,
    says_bidirectional,
    says_causal,
    sources_of,
)
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Kind
from mha_lint.model.mask_fit_facts import Triangle
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

_IN_STEP = re.compile(
    r"aligned|in step|synchron|streaming|simultaneous|monotonic|wait[-_ ]?k|online|frame[-_ ]by[-_ ]frame|"
    r"per[-_ ]step|same (?:clock|time|step)|exercise|interaction|knowledge tracing|event",
    re.IGNORECASE,
)
_GENERIC = frozenset(
    [
        "k",
        "key",
        "keys",
        "v",
        "value",
        "values",
        "kv",
        "key_states",
        "key_value_states",
        "past",
        "past_k",
        "past_key",
        "cache",
        "k_cache",
    ]
)
"""Arguments of these names may hold a cache as well as a source."""
_CAUSAL_CROSS = re.compile(r"causal\w*[\s_-]*cross|cross\w*[\s_-]*causal", re.IGNORECASE)


def causal_cross(subject: Subject, bench: Bench, site: Site) -> Triangle | None:
    """Return the triangle over the keys of another sequence, None if there is none or it is meant."""
    if site.kind is not Kind.CROSS:
        return None
    visible = levels_of(bench, site).visible
    found = pattern_at(bench, site, square=False)
    if found is None or found.side != "earlier" or not found.whole:
        return None
    rows = rows_of(bench, site)
    keys = rows.own(queries=False)
    if keys is None or any(h.entry.argument == keys.argument for h in rows.queries if h.along):
        return None
    t_q, t_k = visible.shape[1:]
    texts = [s.text for s in sources_of(subject, [site.scores])]
    names = owner_classes(bench, site.scores)
    meant = any(_CAUSAL_CROSS.search(t) for t in (*texts, *names)) or any(
        _IN_STEP.search(t) for t in texts
    )
    why, certain = _why_all_are_due(bench, site, keys, found, t_q, t_k)
    if not why or (meant and not certain):
        return None
    return Triangle(
        why,
        certain and not meant,
        _line(bench, site, [s for s in bench.sites if s.kind is Kind.SELF]),
        t_q,
        t_k,
        int((~visible[0]).sum()),
        _hidden_key(visible),
    )


def _why_all_are_due(
    bench: Bench, site: Site, keys: Entry, found: Pattern, t_q: int, t_k: int
) -> tuple[str, bool]:
    """Return why a triangle makes no sense over these keys, and whether that is more than a name."""
    if _sees_later(bench, site, keys):
        return (
            f"each key has seen all of {keys.argument} already, so hiding later ones protects"
            " nothing",
            True,
        )
    if t_q != t_k and found.offset == 0 and keys.argument.lower() not in _GENERIC:
        return (
            f"{t_q} queries and {t_k} keys are two sequences of different length, so that query i"
            " is not at key i",
            True,
        )
    if is_source_name(keys.argument):
        return (
            f"the keys come from {keys.argument}, by its name the source, which is known as a whole",
            False,
        )
    module = str(site.context.meta.get("module", ""))
    if reads_a_source(module):
        return (
            f"the keys come from {keys.argument}, and {module} is by its name cross-attention, whose"
            " source is known as a whole",
            False,
        )
    return "", False


def _sees_later(bench: Bench, site: Site, entry: Entry) -> bool:
    """Return whether the first key depends on the last position of its own sequence."""
    assert site.k is not None
    if entry.axis is None:
        return False
    last = bench.replay.base(entry.node).shape[entry.axis] - 1
    _, (moved,) = reached(bench, entry, [site.k.node], [last])
    changed = moved[0]
    for axis in site.k.features:
        changed = changed.any(axis, keepdim=True)
    first = changed
    for axis in site.k.rows:
        first = first.select(axis, 0).unsqueeze(axis)
    return bool(first.any())


def _hidden_key(visible: Tensor) -> str:
    i, j = (int(x) for x in (~visible[0]).nonzero()[0])
    return f"query {i} does not see key {j}"


def _line(bench: Bench, site: Site, others: list[Site]) -> Span | None:
    """Return the line that makes `site` causal: where the mask is handed over, else where it acts.

    ``others``: sites that may share the attention's own lines, and are rightly causal.
    """
    made = triangle_node(bench, site)
    join = join_of(bench, site, made)
    if made is not None and join is not None and made.op != "get_attr" and apart(made, join):
        return call_line(site, join, None)
    return line_of_its_own(bench, site, join, others)


# --- encoders --------------------------------------------------------------------------------------


def unwanted_triangle(
    subject: Subject, bench: Bench, site: Site, contract: Contract
) -> Triangle | None:
    """Return the triangle of a module that should see in both directions."""
    if site.kind is not Kind.SELF:
        return None
    visible = levels_of(bench, site).visible
    found = pattern_at(bench, site, square=True)
    if found is None or found.side != "earlier" or not in_order(rows_of(bench, site)):
        return None
    why, certain = _why_both(subject, bench, site, contract)
    if not why:
        return None
    t = visible.shape[1]
    return Triangle(
        why,
        certain,
        _line(bench, site, _others(bench, site)),
        t,
        t,
        int((~visible[0]).sum()),
        _hidden_key(visible),
    )


def _why_both(subject: Subject, bench: Bench, site: Site, contract: Contract) -> tuple[str, bool]:
    stated = contract.entry("bidirectional")
    if stated is not None and stated.stated:
        return "--expect bidirectional", True
    if contract.denies("causal"):
        return "it is stated not to be causal", True
    if contract.entry("causal") is not None:
        return "", False
    inferred = f"{stated.source} says so" if stated is not None else ""
    inferred = "" if is_in_time(inferred) else inferred
    if _is_given(bench, site):
        return "", False
    if _reads_first_only(bench):
        return "the output reads position 0 alone, which sees nothing but itself", True
    sources = sources_of(subject, [site.scores])
    names = owner_classes(bench, site.scores)
    path = str(site.context.meta.get("module", "")).lower()
    others = [str(s.all[0].context.meta.get("module", "")).lower() for s in bench.sites]
    beside = any("decoder" in o and "encoder" not in o for o in others)
    if "encoder" in path and beside and not says_causal(_encoder_texts(bench, site)):
        return f"it stands in {path}, beside a decoder", False
    texts = [s.text for s in sources]
    if says_causal([*texts, *names]):
        return "", False
    return says_bidirectional(names, texts) or inferred, False


def _others(bench: Bench, site: Site) -> list[Site]:
    """Return the sites of decoders, and those that attend to another sequence."""
    return [
        s
        for s in bench.sites
        if s.all[0] is not site
        and (
            s.kind is Kind.CROSS
            or "decoder" in str(s.all[0].context.meta.get("module", "")).lower()
        )
    ]


def _encoder_texts(bench: Bench, site: Site) -> list[str]:
    """Return the sources of the encoders around `site`, else of the module that holds it."""
    path = str(site.context.meta.get("module", ""))
    modules = bench.recording.modules
    around = []
    while path:
        if path in modules and not type(modules[path]).__module__.startswith("torch."):
            around.append(modules[path])
        path = path.rpartition(".")[0]
    named = [m for m in around if "encoder" in type(m).__name__.lower()]
    return [s.text for m in named or around[:1] for s in class_sources(type(m))]


def _is_given(bench: Bench, site: Site) -> bool:
    """Return whether the triangle came as an argument of the call."""
    made = triangle_node(bench, site)
    closure = mask_closure(bench, site)
    return made is not None and (
        made.op == "placeholder" or any(p in closure for p in _above(bench, made))
    )


def _above(bench: Bench, node: object) -> set[object]:
    above = bench.dependence.ancestors([node])  # type: ignore[list-item]
    return {p for p in bench.recording.placeholders if p in above}


def _reads_first_only(bench: Bench) -> bool:
    """Return whether of all positions only the first moves the output."""
    found = [e for e in entries_of(bench) if e.axis is not None]
    if len({e.argument for e in found}) != 1:
        return False
    (entry, *_) = found
    assert entry.axis is not None
    if bench.replay.base(entry.node).shape[entry.axis] < 3:
        return False
    outs = [
        n
        for n in bench.recording.outputs
        if isinstance(bench.recording.values.get(n), Tensor) and is_number(bench.recording, n)
    ]
    if not outs:
        return False
    at = bench.replay.base(entry.node)
    if any(at.shape[entry.axis] in bench.replay.base(n).shape[:-1] for n in outs):
        return False  # one row for each position
    others = torch.ones_like(at)
    others.select(entry.axis, 0).zero_()
    before = [bench.replay.base(n) for n in outs]
    after = bench.replay.run(outs, {entry.node: at + MOVE * others})
    return all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
