"""Which sequence a mask speaks of, and whether another mask speaks of the keys' own."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.facts.influence import Entry
from mha_lint.facts.masks.effects import effects_of
from mha_lint.facts.masks.held import entries_of, rows_of
from mha_lint.facts.masks.roots import Root, all_roots, roots_of
from mha_lint.facts.order import NotArrangedError
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

_COMMON = frozenset(
    [
        "mask",
        "masks",
        "pad",
        "pads",
        "padding",
        "valid",
        "keep",
        "attn",
        "attention",
        "att",
        "key",
        "keys",
        "query",
        "value",
        "ids",
        "id",
        "tokens",
        "token",
        "input",
        "inputs",
        "x",
        "len",
        "lens",
        "length",
        "lengths",
        "emb",
        "embed",
        "embeds",
        "embeddings",
        "states",
        "state",
        "hidden",
        "seq",
        "sequence",
        "is",
        "not",
        "bool",
        "real",
        "the",
        "in",
        "of",
        "out",
        "feats",
        "features",
    ]
)
_SOURCE = frozenset(
    [
        "src",
        "source",
        "mem",
        "memory",
        "enc",
        "encoder",
        "encoded",
        "context",
        "ctx",
        "cond",
        "condition",
        "kv",
        "article",
        "document",
    ]
)
_TARGET = frozenset(["tgt", "trg", "target", "dec", "decoder", "decoded", "y", "summary", "answer"])


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a mask speaks of: ``meant`` the entry, ``better`` the mask that speaks of the keys.

    ``certain``: measured, and not only told by names. ``why``: in words.
    """

    meant: Entry | None
    better: str | None
    certain: bool
    why: str


def words_in(name: str) -> frozenset[str]:
    """Return the words of a name that tell one sequence from another."""
    parts = re.split(r"[^a-z]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    found = {p for p in parts if p and p not in _COMMON}
    if found & _SOURCE:
        found.add("<source>")
    if found & _TARGET:
        found.add("<target>")
    return frozenset(found)


def named_stream(name: str, streams: list[Entry]) -> Entry | None:
    """Return the one of `streams` that `name` has a word in common with."""
    mine = words_in(name)
    found = [e for e in streams if words_in(e.argument) & mine]
    if not found and "<target>" in mine:  # "x" beside "memory" is the target
        found = [e for e in streams if "<source>" not in words_in(e.argument)]
        if len({e.argument for e in found}) == len({e.argument for e in streams}):
            return None
    arguments = {e.argument for e in found}
    return found[0] if len(arguments) == 1 else None


def streams_of(bench: Bench, root: Root, site: Site) -> Spoken:
    """Return which sequence `root` speaks of, by what it is made from, its other uses or its name."""
    sequences = [e for e in entries_of(bench) if e.axis is not None]
    own = rows_of(bench, site).own(queries=False)
    if own is None or len({e.argument for e in sequences}) < 2:
        return Spoken(None, None, False, "")
    if root.entry is not None:
        if root.entry.argument == own.argument:
            return Spoken(own, None, True, "")
        better = _mask_of(bench, site, own, root)
        why = f"it is made from {root.entry.argument}, which no key of this attention depends on"
        return Spoken(root.entry, better, True, why)
    by_use = _used_for(bench, root, site)
    by_name = named_stream(root.argument, sequences)
    meant = by_name or by_use
    if meant is None or meant.argument == own.argument:
        return Spoken(meant, None, False, "")
    better = _mask_of(bench, site, own, root)
    certain = by_use is not None and by_use.argument == meant.argument
    if not certain and (better is None or named_stream(better, sequences) != own):
        return Spoken(None, None, False, "")
    why = (
        f"elsewhere {root.argument} hides keys that come from {meant.argument}"
        if certain
        else "judged from the arguments' names"
    )
    return Spoken(meant, better, certain, why)


def _used_for(bench: Bench, root: Root, site: Site) -> Entry | None:
    """Return the entry whose keys `root` hides at the self-attention sites of the call."""
    found: set[Entry] = set()
    for other in bench.sites:
        one = other.all[0]
        if one is site or one.score is None:
            continue
        try:
            rows = rows_of(bench, one)
            acts = [r for r in roots_of(bench, one) if r.node is root.node]
            if not acts or not effects_of(bench, one, acts[0]):
                continue
        except NotArrangedError:
            continue
        keys, queries = rows.own(queries=False), rows.own(queries=True)
        if keys is not None and keys == queries:
            found.add(keys)
    return found.pop() if len(found) == 1 else None


def _mask_of(bench: Bench, site: Site, own: Entry, root: Root) -> str | None:
    """Return the name of a mask that speaks of the keys' own sequence and does not act at `site`."""
    acting = {r.node for r in roots_of(bench, site)}
    sequences = [e for e in entries_of(bench) if e.axis is not None]
    for other in all_roots(bench):
        if other.node in acting or other.node is root.node:
            continue
        if other.entry is not None:
            if other.entry.argument == own.argument:
                return other.argument
            continue
        if not _as_long(bench, other, root):
            continue
        named = named_stream(other.argument, sequences)
        if named == own or (named is None and named_stream(root.argument, sequences) != own):
            used = _used_for(bench, other, site)
            if used is None or used.argument == own.argument:
                return other.argument
    return None


def _as_long(bench: Bench, one: Root, other: Root) -> bool:
    first, second = (bench.recording.values[r.node] for r in (one, other))
    return (
        isinstance(first, Tensor)
        and isinstance(second, Tensor)
        and first.dim() >= 1
        and first.shape[-1] == second.shape[-1]
    )


def is_source_name(name: str) -> bool:
    """Return whether an argument is called after the source of an encoder-decoder."""
    return "<source>" in words_in(name)


def is_nameless(name: str) -> bool:
    """Return whether the name of a mask tells no sequence from another."""
    return not words_in(name) and not {"x", "query", "self"} & set(name.lower().split("_"))


def of_absent_states(subject: Subject, name: str) -> bool:
    """Return whether a mask is called after states that the call leaves out.

    ``encoder_attention_mask`` says nothing where no ``encoder_hidden_states`` came.
    """
    words = words_in(name) - {"<source>", "<target>"}
    called: Any = subject.module
    call = called.forward if isinstance(called, nn.Module) else called
    try:
        taken = inspect.signature(call).parameters
    except (TypeError, ValueError):
        return False
    return bool(words) and any(
        p.default is None
        and _is_left_out(subject, other)
        and words & words_in(other)
        and not re.search(r"mask|pad|valid", other.lower())
        for other, p in taken.items()
    )


def _is_left_out(subject: Subject, name: str) -> bool:
    given = dict(zip(subject.argument_names, subject.args, strict=False)) | subject.kwargs
    return given.get(name) is None
