"""What code knows of padding, and which positions of the call are padded by that."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.influence import Entry
from mha_lint.facts.masks.counts import counts_real
from mha_lint.facts.masks.effects import effects_of, reads
from mha_lint.facts.masks.held import entries_of
from mha_lint.facts.masks.roots import Root, roots_among, roots_of
from mha_lint.facts.masks.signs import is_padding_id
from mha_lint.facts.masks.words import is_about_padding, name_says
from mha_lint.facts.order import NotArrangedError
from mha_lint.sites.dependence import is_number, op
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """What the code knows of padding: ``pads`` (B, T) of ``entry``, and the nodes that are to be
    replaced (``given``) for a call in which these positions are padded."""

    entry: Entry
    pads: Tensor
    given: dict[Node, Tensor]
    words: str
    root: Root | None
    of_padding: bool = False
    """The root is about padding by name, or counts, and samples end in the padded positions.

    Zeros in front of a causal history are a custom (SASRec), and stay among its keys.
    """
    told: Site | None = None
    """Nothing but this site's reading says that it is padding: its like are to be told as well."""


def by_masks(bench: Bench) -> list[Knowledge]:
    """Return what masks and comparisons that act somewhere in the call say."""
    found = []
    for root in roots_among(bench, bench.dependence.live):
        if root.additive or not root.placed or bench.recording.values[root.node].dim() < 2:
            continue
        meaning, told = _meaning(bench, root), None
        if not meaning and not root.compares:
            meaning, told = _read_by_attention(bench, root)
        if not meaning:
            continue
        for entry in _entries_of(bench, root):
            pads, given = _padded(bench, root, entry, meaning)
            if pads is None or (told is not None and not _is_padded(pads)):
                continue
            ends = bool(root.compares or is_about_padding(root.argument))
            ends &= _is_padded(pads) and not bool(pads[:, 0].any())
            found.append(Knowledge(entry, pads, given, _words(root), root, ends, told))
    return found


def _meaning(bench: Bench, root: Root) -> str:
    """Return what yes means in a root: "keep" or "hide" of padding; "" where it is not about that."""
    if root.compares in ("eq", "ne", "gt", "to", "sign") and root.constant is not None:
        if root.entry is None or not (is_padding_id(bench, root) or root.constant == 0):
            return ""
        return "hide" if root.compares == "eq" else "keep"
    if root.compares in ("lt", "le", "gt", "ge"):
        named = is_about_padding(root.argument) and "prefix" not in root.argument.lower()
        used = _kept_by_use(bench, root) or counts_real(bench, root.placeholder)
        if not named and not used:
            return ""
        first = bench.recording.values[root.node][root.positions == 0]
        if not first.numel():
            return ""
        return "keep" if bool(first.all()) else "hide" if not bool(first.any()) else ""
    if root.compares:
        return ""
    said = "keep" if root.argument == "attention_mask" else name_says(root.argument)
    if said or not is_about_padding(root.argument):
        return said
    return _read_by_attention(bench, root)[0] or _kept_by_use(bench, root)


def _read_by_attention(bench: Bench, root: Root) -> tuple[str, Site | None]:
    """Return what an attention of the call takes yes to mean, and which one, ("", None) if none does."""
    for site in bench.sites:
        first = site.all[0]
        if first.score is None:
            continue
        try:
            acts = [r for r in roots_of(bench, first) if r.node is root.node]
            read = reads(effects_of(bench, first, acts[0])) if acts else ""
        except NotArrangedError:
            continue
        if read:
            return read, site
    return "", None


def _kept_by_use(bench: Bench, root: Root) -> str:
    """Return "keep" where data is multiplied by the mask: what is 0 in it is left out."""
    below = bench.dependence.descendants([root.node])
    plain = {root.node}
    for node in sorted(below, key=bench.dependence.order.__getitem__):
        if node is root.node:
            continue
        if not any(n in plain for n in node.all_input_nodes):
            continue
        if op(node) in (
            "to",
            "unsqueeze",
            "view",
            "reshape",
            "expand",
            "type_as",
            "index",
            "expand_as",
        ):
            plain.add(node)
        elif op(node) == "mul" and any(
            is_number(bench.recording, n) and n not in below for n in node.all_input_nodes
        ):
            return "keep"
    return ""


def _words(root: Root) -> str:
    if root.compares and root.constant is not None:
        sign = {"eq": "==", "ne": "!=", "gt": ">"}.get(root.compares, "!=")
        return f"{root.argument} {sign} {int(root.constant)} is used elsewhere"
    if root.compares:
        return f"{root.argument} tells how long each sample is"
    return f"{root.argument} is used elsewhere"


def _entries_of(bench: Bench, root: Root) -> list[Entry]:
    """Return the entries whose positions `root` speaks of."""
    if root.entry is not None:
        return [root.entry]
    value = bench.recording.values[root.node]
    n = int(root.positions.max()) + 1
    samples = int(root.samples.max()) + 1
    fitting = [
        e
        for e in entries_of(bench)
        if e.axis is not None
        and bench.replay.base(e.node).dim() == 3
        and bench.replay.base(e.node).shape[e.axis] == n
        and bench.replay.base(e.node).shape[1 - e.axis] == samples
    ]
    del value
    arguments = {e.argument for e in fitting}
    return fitting if len(arguments) == 1 else []


def _padded(
    bench: Bench, root: Root, entry: Entry, meaning: str
) -> tuple[Tensor | None, dict[Node, Tensor]]:
    """Return which positions of `entry` are padded, by the call or, if none is, by a changed root."""
    at = bench.replay.base(entry.node)
    assert entry.axis is not None
    if at.dim() != 3 or entry.axis > 1:
        return None, {}
    t, b = at.shape[entry.axis], at.shape[1 - entry.axis]
    value = bench.replay.base(root.node)
    samples, positions = root.samples.flatten(), root.positions.flatten()
    if int(samples.max()) >= b or int(positions.max()) >= t or t < 2:
        return None, {}
    yes = (value == root.on).flatten()
    padded = ~yes if meaning == "keep" else yes
    pads = torch.zeros(b, t, dtype=torch.bool)
    pads[samples[padded], positions[padded]] = True
    given: dict[Node, Tensor] = {}
    partial = pads.any(1) & ~pads.all(1)
    if not bool(partial.any()):
        if bool(pads.any()):
            return None, {}
        # The call has no padding: let the last third of the last sample be padded.
        pads[b - 1, t - max(1, t // 3) :] = True
        changed = value.clone().flatten()
        there = pads[samples, positions]
        changed[there] = root.off if meaning == "keep" else root.on
        given[root.node] = changed.reshape(value.shape)
    return pads, given


def by_padding_index(subject: Subject, bench: Bench) -> list[Knowledge]:
    """Return what an embedding with a padding index says, where the ids of the call end in padding."""
    if _could_be_told(subject, bench):
        return []
    found = []
    for entry in entries_of(bench):
        index = _padding_index(bench, entry)
        if index is None or entry.axis is None:
            continue
        ids = [n for n in entry.node.all_input_nodes if not is_number(bench.recording, n)]
        if len(ids) != 1:
            continue
        value = bench.recording.values[ids[0]]
        if value.dim() != 2 or entry.axis > 1:
            continue
        pads = value == index
        pads = pads if entry.axis == 1 else pads.T
        if not _is_padded(pads):
            continue
        words = (
            f"the embedding of {entry.argument} has padding_idx={index}, and the call pads with it"
        )
        found.append(Knowledge(entry, pads, {}, words, None))
    return found


def _padding_index(bench: Bench, entry: Entry) -> int | None:
    if op(entry.node) != "embedding":
        return None
    module: Any = bench.recording.module
    path = str(entry.node.meta.get("module", ""))
    if not isinstance(module, nn.Module) or not path:
        return None
    try:
        index = getattr(module.get_submodule(path), "padding_idx", None)
    except AttributeError:
        return None
    return index if isinstance(index, int) else None


def _is_padded(pads: Tensor) -> bool:
    """Return whether samples end (or begin) in padding as only padding does: in runs of two or more."""
    runs = False
    for row in pads.tolist():
        real = [i for i, p in enumerate(row) if not p]
        if not real:
            return False
        inside = row[real[0] : real[-1] + 1]
        if any(inside):
            return False
        runs |= len(row) - len(inside) >= 2
    return runs


def _could_be_told(subject: Subject, bench: Bench) -> bool:
    """Return whether the code takes masks or lengths that the call did not give, or drops one it made."""
    module: Any = subject.module
    call = module.forward if isinstance(module, nn.Module) else module
    try:
        names = list(inspect.signature(call).parameters)
    except (TypeError, ValueError):
        return True
    if any(is_about_padding(n) or "mask" in n.lower() for n in names):
        return True
    dead = [n for n in bench.recording.graph.nodes if n not in bench.dependence.live]
    return bool(roots_among(bench, set(dead)))
