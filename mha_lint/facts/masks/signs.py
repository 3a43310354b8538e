"""What says which way round a mask is meant: the call, padding ids, lengths, names, comments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.counts import counts_real, is_called_length, says_length
from mha_lint.facts.masks.effects import effects_of, reads
from mha_lint.facts.masks.roots import Root, roots_among, roots_of
from mha_lint.facts.masks.words import (
    comments_say,
    is_about_padding,
    name_says,
    says_complement,
    sources_of,
)
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.places import span_of
from mha_lint.model.contract import Contract
from mha_lint.model.lines import line_of
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

OPPOSITE = {"keep": "hide", "hide": "keep"}


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that says what yes means: ``weight`` 2 is certain, 1 a name or comment."""

    meaning: str
    words: str
    weight: int


def signs_of(
    subject: Subject, bench: Bench, site: Site, root: Root, done: str, contract: Contract
) -> list[Sign]:
    """Return all that says what yes means in `root`, which `site` reads as `done`."""
    found: list[Sign] = []
    stated = contract.entry("mask")
    if not root.compares and stated is not None and stated.stated:
        found.append(Sign(str(stated.value), f"--expect mask={stated.value}", 3))
        return found
    found += _derived(subject, bench, site, root)
    found += _content(subject, bench, root, done)
    if not root.compares:
        found += _words(subject, bench, site, root)
    if root.argument == "attention_mask" and root.placed and root.samples.dim() == 2:
        found.append(Sign("keep", "attention_mask is 1 for tokens by the customary convention", 1))
    if not found:
        found += _elsewhere(subject, bench, site, root, done)
    return found


def _derived(subject: Subject, bench: Bench, site: Site, root: Root) -> list[Sign]:
    """Return what a comparison of token ids or lengths means."""
    line = _source_line(root.node)
    about = is_about_padding(line) or is_about_padding(root.argument)
    if root.compares in ("eq", "ne", "gt", "to", "sign", "isnan") and root.constant is not None:
        pad = is_padding_id(bench, root) or (root.constant == 0 and "pad" in line.lower())
        if root.entry is None or not pad:
            return []
        real = root.compares != "eq"
        words = f"{written(root)} is {'true at real tokens' if real else 'true at padding'}"
        return [Sign("keep" if real else "hide", words, 2)]
    if root.compares in ("lt", "le", "gt", "ge") and root.constant is None and root.placed:
        return _counted(subject, bench, site, root, about=about)
    return []


def _counted(subject: Subject, bench: Bench, site: Site, root: Root, *, about: bool) -> list[Sign]:
    """Return what a comparison of positions with the number of real ones means."""
    inside = _inside(bench, root)
    if inside is None:
        return []
    words = (
        f"the comparison with {root.argument} is true"
        f" {'within' if inside == 'keep' else 'beyond'} each sample's length"
    )
    if is_called_length(root.argument) and about:
        return [Sign(inside, words, 2)]
    if bench.recording.values[root.placeholder].dim() != 1:
        return []  # not one number for each sample
    used = counts_real(bench, root.placeholder)
    if used:
        return [Sign(inside, f"{words}: {used}", 2)]
    said = says_length(subject, [site.scores], root.argument)
    return [Sign(inside, f"{words}: the source says “{_short(said)}”", 1)] if said else []


def _inside(bench: Bench, root: Root) -> str | None:
    """Return "keep" where yes marks the first positions of each sample, "hide" the others."""
    value = bench.recording.values[root.node]
    first = value[root.positions == 0]
    if first.numel() == 0:
        return None
    last = value[root.positions == int(root.positions.max())]
    if bool(first.all()) and not bool(last.all()):
        return "keep"
    if not bool(first.any()) and bool(last.any()):
        return "hide"
    # All lengths are full: then one way round everything is true, the other way round nothing.
    if bool(value.all()):
        return "keep"
    return "hide" if not bool(value.any()) else None


def _content(subject: Subject, bench: Bench, root: Root, done: str) -> list[Sign]:
    """Return what the mask of the call itself says: no sample is meant to be hidden altogether."""
    if not subject.real or not root.placed:
        return []
    yes = bench.recording.values[root.node] == root.on
    hidden = yes if done == "hide" else ~yes
    rows = _by_sample(root, hidden)
    if rows is None:
        return []
    whole = [b for b, row in rows.items() if bool(row.all())]
    empty = [b for b, row in rows.items() if not bool(row.any())]
    parts = [row for row in rows.values() if bool(row.any()) and not bool(row.all())]
    ends = [_padded_end(row) for row in parts]
    if whole and not empty:
        if any(e == "end" for e in ends):
            return []  # padded as usual, and one sample has nothing at all
        words = f"what the call gives would hide every key of sample {whole[0]}"
        return [Sign(OPPOSITE[done], words, 2)]
    if empty and not whole and "end" in ends:
        return [Sign(done, "what the call gives hides the end of a sample", 2)]
    if ends and all(e == "end" for e in ends):
        return [Sign(done, "what the call gives hides the ends of samples", 1)]
    return []


def _by_sample(root: Root, values: Tensor) -> dict[int, Tensor] | None:
    """Return the values of each sample, by position; None unless there is one for each position."""
    out: dict[int, Tensor] = {}
    samples, positions = root.samples.flatten(), root.positions.flatten()
    flat = values.flatten()
    for b in sorted(set(samples.tolist())):
        there = samples == b
        order = positions[there].argsort()
        if len(set(positions[there].tolist())) != int(there.sum()):
            return None
        out[b] = flat[there][order]
    return out if all(r.numel() > 1 for r in out.values()) else None


def _padded_end(hidden: Tensor) -> str:
    """Return which end of a sample is hidden: "start", "end" or ""."""
    steps = int((hidden[1:] != hidden[:-1]).sum())
    if steps != 1:
        return ""
    return "start" if bool(hidden[0]) else "end"


def _words(subject: Subject, bench: Bench, site: Site, root: Root) -> list[Sign]:
    """Return what the argument's name and the comments about it say."""
    found: list[Sign] = []
    said = name_says(root.argument)
    if said:
        found.append(Sign(said, f"the argument is called {root.argument}", 1))
    masks = [r for r in roots_of(bench, site) if not r.compares]
    for source in sources_of(subject, [site.scores]):
        spoken = comments_say(source.text, root.argument, only=len(masks) == 1)
        if spoken is not None:
            found.append(Sign(spoken.meaning, f"the source says “{_short(spoken.words)}”", 1))
            break
    return found


def _short(words: str) -> str:
    plain = words.strip().lstrip("#").strip()
    return plain if len(plain) <= 70 else plain[:67] + "..."


def _source_line(node: Node) -> str:
    span = span_of(node)
    return line_of(span.path, span.line) if span is not None else ""


def _elsewhere(subject: Subject, bench: Bench, site: Site, root: Root, done: str) -> list[Sign]:
    """Return what an earlier site of the call makes of the same mask."""
    texts = [s.text for s in sources_of(subject, [site.scores])]
    if says_complement(texts):
        return []
    for other in bench.sites:
        one = other.all[0]
        if one is site:
            continue
        earlier = bench.dependence.order[one.scores] < bench.dependence.order[site.scores]
        if not earlier or one.score is None:
            continue
        try:
            acts = [r for r in roots_of(bench, one) if r.node is root.node]
            read = reads(effects_of(bench, one, acts[0])) if acts else ""
        except NotArrangedError:
            continue
        if read == OPPOSITE[done]:
            verb = "hides" if read == "hide" else "shows"
            words = f"another attention before it {verb} the keys where {root.argument} is true"
            return [Sign(read, words, 1)]
    return []


def written(root: Root) -> str:
    """Return a comparison as a reader would write it."""
    marks = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    if root.compares in marks and root.constant is not None:
        constant = int(root.constant) if root.constant == int(root.constant) else root.constant
        return f"{root.argument} {marks[root.compares]} {constant}"
    return f"the mask made from {root.argument}"


def is_padding_id(bench: Bench, root: Root) -> bool:
    """Return whether the number that ids are compared with is called the padding id somewhere."""
    module: Any = bench.recording.module
    if root.constant is None or not float(root.constant).is_integer():
        return False
    if not isinstance(module, nn.Module):
        return False
    for one in module.modules():
        if getattr(one, "padding_idx", None) == int(root.constant):
            return True
        for name, value in vars(one).items():
            if "pad" in name.lower() and type(value) is int and value == int(root.constant):
                return True
    return False


def tells_kinds(bench: Bench, node: Node) -> bool:
    """Return whether truth values tell ids of one kind (a picture's, a separator) from all others.

    That is a comparison with a number which nothing calls the padding id.
    """
    found = roots_among(bench, {node, *bench.dependence.ancestors([node])})
    return bool(found) and all(
        root.compares in ("eq", "ne")
        and root.constant not in (None, 0)
        and not is_padding_id(bench, root)
        and not is_about_padding(_source_line(root.node))
        for root in found
    )
