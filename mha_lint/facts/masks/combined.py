"""Two masks that are joined by the wrong one of "and" and "or"."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.influence import Entry
from mha_lint.facts.masks.effects import effects_of, reads, sample_of
from mha_lint.facts.masks.held import Held, Rows
from mha_lint.facts.masks.joins import join_of, meeting_of
from mha_lint.facts.masks.patterns import pattern_of
from mha_lint.facts.masks.roots import Root, mask_closure, whole
from mha_lint.facts.masks.visible import visible_with
from mha_lint.facts.places import span_of
from mha_lint.model.mask_fit_facts import Misplaced
from mha_lint.sites.dependence import op, operands
from mha_lint.sites.site import Site


def joined_to_nothing(bench: Bench, site: Site) -> Iterator[Misplaced]:
    """Yield joins of the future with the past, which hide nothing, and of a triangle with padding."""
    closure = mask_closure(bench, site)
    for node in sorted(closure, key=bench.dependence.order.__getitem__):
        if op(node) not in ("bitwise_and", "bitwise_or", "logical_and", "logical_or", "mul"):
            continue
        values = [bench.recording.values.get(n) for n in operands(node)]
        if len(values) != 2 or not all(_is_yes_no(v) for v in values):
            continue
        one, other = (v.bool() for v in values if isinstance(v, Tensor))
        joined = bench.recording.values[node].bool()
        if _all_alike(one) or _all_alike(other) or not _all_alike(joined):
            continue
        if not _halves(one, other):
            continue
        yield Misplaced(
            "halves",
            "the mask",
            "each of the two masks that are joined hides something, and together they hide nothing:"
            " one hides later positions alone, the other earlier ones",
            True,
            span_of(node),
            "every key is visible to every query",
        )


def _is_yes_no(value: object) -> bool:
    return isinstance(value, Tensor) and (
        value.dtype is torch.bool
        or (value.numel() < 4096 and set(value.flatten().tolist()) <= {0, 1})
    )


def _all_alike(value: Tensor) -> bool:
    return bool(value.all()) or not bool(value.any())


def _halves(one: Tensor, other: Tensor) -> bool:
    """Return whether the one hides on one side of the diagonal only, the other on the other.

    Two whole triangles are none: looking back or ahead, that is in both directions, is meant.
    """
    if one.dim() < 2 or one.shape[-2:] != other.shape[-2:] or one.shape[-1] != one.shape[-2]:
        return False
    for yes in (True, False):
        first, second = _side(one == yes), _side(other == yes)
        if {first[0], second[0]} == {"above", "below"} and not (first[1] and second[1]):
            return True
    return False


def _side(hidden: Tensor) -> tuple[str, bool]:
    """Return the side of the diagonal that is hidden, "" for both, and whether all of it is."""
    flat = hidden.reshape(-1, *hidden.shape[-2:])
    ones = torch.ones_like(flat[0])
    above, below = ones.triu(1), ones.tril(-1)
    on_top, beneath = flat[:, above], flat[:, below]
    if bool(on_top.any()) == bool(beneath.any()) or bool(flat.diagonal(dim1=-2, dim2=-1).any()):
        return "", False
    return ("above", bool(on_top.all())) if bool(on_top.any()) else ("below", bool(beneath.all()))


def shown_by_either(bench: Bench, site: Site, root: Root) -> Misplaced | None:
    """Return a triangle and a padding mask of which either lets a key be seen.

    A prefix that all may see is joined in this way on purpose; padding is not.
    """
    done = reads(effects_of(bench, site, root))
    if not done or root.additive or not _speaks_of_padding(bench, root):
        return None
    none = root.on if done == "hide" else root.off
    every = root.off if done == "hide" else root.on
    closed = visible_with(bench, site, {root.node: whole(bench, root, none)})
    opened = visible_with(bench, site, {root.node: whole(bench, root, every)})
    pattern = pattern_of(closed, square=True)
    if pattern is None or pattern.side != "earlier" or not bool(opened.all()):
        return None
    meeting = meeting_of(bench, site, root.node)
    return Misplaced(
        "either",
        root.name,
        "a padded key is visible to every query behind it, and a real key to every query before it",
        True,
        span_of(meeting if meeting is not None else join_of(bench, site, root.node)),
        "with everything padded the triangle is still visible",
    )


def still_seen(bench: Bench, site: Site, root: Root, rows: Rows, entry: Entry) -> Misplaced | None:
    """Return a padding mask that acts here and leaves padded keys of `entry` visible to real queries."""
    done = reads(effects_of(bench, site, root))
    if not done or root.additive or not root.placed or not _speaks_of_padding(bench, root):
        return None
    value = bench.replay.base(root.node)
    none, every = (root.on, root.off) if done == "hide" else (root.off, root.on)
    if bool((value == every).all()):
        # The call has no padding: let the last third of the last sample be padded.
        last = (root.samples == root.samples.max()) & (
            root.positions * 3 > 2 * root.positions.max()
        )
        value = torch.where(last, whole(bench, root, none), value)
    padded, real = set(_places(root, value == none)), set(_places(root, value == every))
    samples = sample_of(rows.keys)
    if samples is None or not padded or padded & real:
        return None
    visible = visible_with(bench, site, {root.node: value})
    for g, i, j in visible.nonzero().tolist():
        b = int(samples[g])
        key = (b, _held_at(entry, rows.keys, g, j))
        query = (b, _held_at(entry, rows.queries, g, i))
        if key in padded and query in real:
            meeting = meeting_of(bench, site, root.node, own=True)
            return Misplaced(
                "either",
                root.name,
                f"query {query[1]} of sample {b} is real and sees key {key[1]}, which is padded",
                True,
                span_of(meeting if meeting is not None else join_of(bench, site, root.node)),
                f"query {query[1]} sees key {key[1]} of sample {b} with a positive weight",
            )
    return None


def _places(root: Root, chosen: Tensor) -> list[tuple[int, int]]:
    """Return sample and position of the elements of `root` that are `chosen`."""
    flat = chosen.flatten()
    samples, positions = root.samples.flatten()[flat], root.positions.flatten()[flat]
    return list(zip(samples.tolist(), positions.tolist(), strict=True))


def _held_at(entry: Entry, sides: tuple[Held, ...], g: int, row: int) -> int:
    """Return the position of `entry` that a row holds, -1 where it holds none."""
    for held in sides:
        if held.entry == entry:
            return int(held.positions[g, row])
    return -1


def _speaks_of_padding(bench: Bench, root: Root) -> bool:
    """Return whether `root` marks padding: ids compared with the padding id, or a name that says so."""
    if root.compares in ("eq", "ne", "gt"):
        return root.entry is not None and root.constant is not None
    return not root.compares and bool(re.search(r"pad|valid", root.argument.lower()))
