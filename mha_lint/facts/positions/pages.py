"""Positions that begin anew in each part of one sequence, while attention spans all of it.

A part is a piece of an argument of the call (a page of a transcript) that the module cuts out itself,
by a loop or a reshape; frames and passages that the caller keeps on an axis of their own are none.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.places import span_of
from mha_lint.model.source import Span
from mha_lint.sites.site import Site

SAME = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """What `node` adds, put where it ends up: ``rows`` (T, F), ``there`` (T,) whether it does.

    ``parts``: (T,) the number of the part that a position is in, where the node holds several.
    """

    node: Node
    side: Node
    rows: Tensor
    there: Tensor
    parts: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Restart:
    """Two positions of different parts that are alike, and where the second part begins."""

    first: int
    second: int
    count: int
    span: Span | None


def placed_on_one(node: Node, side: Node, rows: Tensor, place: Tensor) -> Placed:
    """Return `rows` (n, ...) put at the positions whose `place` (T,) names them."""
    there = place >= 0
    flat = rows.flatten(1)[place.clamp(min=0)]
    return Placed(node, side, torch.where(there[:, None], flat, 0.0), there)


def placed_on_two(
    node: Node, side: Node, rows: Tensor, places: tuple[Tensor, ...]
) -> Placed | None:
    """Return `rows` (m, n, ...) put at the positions whose two places name them."""
    slow, fast = places
    there = (slow >= 0) & (fast >= 0)
    flat = rows.flatten(2)[slow.clamp(min=0), fast.clamp(min=0)]
    parts = next((p for p in places if bool((p[1:] >= p[:-1]).all())), None)
    if parts is None or not bool(there.all()):
        return None
    return Placed(node, side, flat, there, parts)


def restart_of(bench: Bench, reads: Node, placed: list[Placed]) -> Restart | None:
    """Return positions of different parts that nothing tells apart, None if there are none."""
    for group in _groups(placed):
        parts = _parts(group)
        if parts is None or not _cut_here(bench, reads, group, len(parts)):
            continue
        others = [p.rows for p in placed if p not in group]
        rows = torch.cat([torch.stack([p.rows for p in group]).sum(0), *others], -1)
        again = _again(rows, parts)
        if again is None or not _meet(bench, reads, *again[:2]):
            continue
        first, second, count = again
        return Restart(first, second, count, _counted_at(bench, group[0]))
    return None


def _groups(placed: list[Placed]) -> list[list[Placed]]:
    """Return what one line adds to each part in its turn, and what one sum adds to all parts."""
    found: dict[tuple[Span | None, int], list[Placed]] = {}
    for one in placed:
        if one.parts is None and not bool(one.there.all()):
            found.setdefault((span_of(one.node), one.rows.shape[1]), []).append(one)
    loops = [g for g in found.values() if len(g) > 1]
    return [*loops, *([p] for p in placed if p.parts is not None)]


def _parts(group: list[Placed]) -> Tensor | None:
    """Return (T,) the number of the part that holds a position, None if parts overlap or leave gaps."""
    if len(group) == 1:
        return group[0].parts
    covered = torch.stack([p.there for p in group])
    if not bool((covered.sum(0) == 1).all()):
        return None
    return covered.long().argmax(0)


def _again(rows: Tensor, parts: Tensor) -> tuple[int, int, int] | None:
    """Return two positions of different parts that are alike, and how many there are."""
    first = next((p for p in range(len(parts)) if parts[p] != parts[0]), None)
    if first is None:
        return None
    own = rows[:first]
    if first < 2 or any(bool(((a - b).abs() <= SAME).all()) for a, b in itertools.pairwise(own)):
        return None
    behind = rows[first : first + len(own)]
    if not bool(((behind - own[: len(behind)]).abs() <= SAME).all()):
        return None
    return 0, first, len(parts) - first


def _cut_here(bench: Bench, reads: Node, group: list[Placed], length: int) -> bool:
    """Return whether all parts are cut from the one argument, with the whole sequence on one axis."""
    known = set(bench.recording.placeholders)
    above = [known & bench.dependence.ancestors([p.node]) for p in group]
    shared = set.intersection(*above)
    if len(shared) != 1 or shared != known & bench.dependence.ancestors([reads]):
        return False  # kinds of tokens that the caller names may tell the parts apart
    (node,) = shared
    value = bench.recording.values[node]
    if length not in tuple(value.shape)[1:]:
        return False
    return group[0].parts is None or not value.is_floating_point()


def _meet(bench: Bench, reads: Node, first: int, second: int) -> bool:
    """Return whether some attention over `reads` lets the two positions meet."""
    members = [m for site in bench.sites for m in site.all]
    return any(_sees(bench, m, reads, first, second) for m in members)


def _sees(bench: Bench, site: Site, reads: Node, first: int, second: int) -> bool:
    for operand in (site.q, site.k):
        source = operand.source if operand is not None else None
        if source is None or (source.reads or source.node) is not reads:
            return False
    try:
        levels = levels_of(bench, site)
    except NotArrangedError:
        return False
    queries, keys = levels.group.queries[:, :, None], levels.group.keys[:, None]
    pair = (queries == second) & (keys == first)
    return bool((pair & levels.visible).any())


def _counted_at(bench: Bench, one: Placed) -> Span | None:
    """Return where the positions of a part are counted, else what is added."""
    count = int(one.there.sum()) if one.parts is None else int((one.parts == one.parts[0]).sum())
    order = bench.dependence.order.__getitem__
    for node in sorted(bench.dependence.ancestors([one.side]), key=order):
        value = bench.recording.values.get(node)
        if not isinstance(value, Tensor) or value.dtype == torch.bool or value.numel() != count:
            continue
        flat = value.detach().flatten().double()
        if bool(((flat[1:] - flat[:-1]) == 1).all()) and node.op != "get_attr":
            return span_of(node)
    return span_of(one.side)
