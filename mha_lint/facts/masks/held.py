"""Which sample and position of each input the rows of queries and keys hold themselves.

Attention of earlier layers lets every row hold something of every position. Here its results are
kept as they were, so that only what passes beside it (the residual) moves: a row's own position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.influence import Entry, entries
from mha_lint.facts.masks.once import once
from mha_lint.facts.order import score_operands
from mha_lint.sites.dependence import is_number
from mha_lint.sites.site import Site

STEP = 1e-6
CLEAN = 0.05
"""How far a measured index may lie from a whole number, and the share left unexplained by it."""
FAINT = 1e-9
"""Relative: a smaller response is rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What the rows of one operand, (G, R), hold of one entry.

    ``moves``: the entry reaches the row. ``samples`` and ``positions``: which of its samples and
    positions, -1 where there is none or several are mixed. ``batch``: the axis of the entry's node
    that samples run along, None where there is one sample; ``along``: those of the positions.
    """

    entry: Entry
    moves: Tensor
    samples: Tensor
    positions: Tensor
    batch: int | None
    along: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What the queries and the keys of one site hold, entry by entry.

    ``fed``: (G, R) the keys that an argument reaches which is no entry (the patches of all pictures
    in one list), None without such an argument: which positions they hold is not known.
    """

    queries: tuple[Held, ...]
    keys: tuple[Held, ...]
    fed: Tensor | None = None

    def own(self, *, queries: bool) -> Entry | None:
        """Return the one entry whose positions the queries (or keys) hold, None for none or several."""
        sides = self.queries if queries else self.keys
        found = [h.entry for h in sides if bool((h.positions >= 0).any()) and len(h.along) > 0]
        return found[0] if len(found) == 1 else None


@once
def entries_of(bench: Bench) -> tuple[Entry, ...]:
    """Return the entries of the subject."""
    return tuple(entries(bench))


class _Stand:
    """Gives responses in the place of the operands' values."""

    def __init__(self, bench: Bench, values: dict[Node, Tensor]) -> None:
        self._bench, self._values = bench, values

    def base(self, node: Node) -> Any:
        return self._values.get(node, self._bench.replay.base(node))


@once
def rows_of(bench: Bench, site: Site) -> Rows:
    """Return what the rows of `site` (a member, with a score) hold; shapes must be arrangeable."""
    assert site.q is not None and site.k is not None
    ends = (site.q.node, site.k.node)
    above = bench.dependence.ancestors(ends)
    kept = {
        member.context: bench.replay.base(member.context)
        for other in bench.sites
        for member in other.all
        if member.context in above
    }
    queries: list[Held] = []
    keys: list[Held] = []
    for entry in entries_of(bench):
        if entry.node not in above or bench.replay.base(entry.node).dim() < 2:
            continue
        for out, found in zip((queries, keys), _held(bench, site, entry, kept), strict=True):
            if bool(found.moves.any()):
                out.append(found)
    return Rows(tuple(queries), tuple(keys), _fed(bench, site))


def _fed(bench: Bench, site: Site) -> Tensor | None:
    """Return the keys that respond to float arguments which are no entries."""
    assert site.k is not None
    above = bench.dependence.ancestors([site.k.node])
    told = {e.node for e in entries_of(bench)}
    others = [
        p
        for p in bench.recording.placeholders
        if p in above and p not in told and is_number(bench.recording, p)
    ]
    if not others:
        return None
    generator = torch.Generator().manual_seed(5)
    by = {
        p: torch.rand(at.shape, generator=generator, dtype=torch.float64) + 0.5
        for p in others
        for at in (bench.replay.base(p),)
    }
    _, keys = _responses(bench, site, {p: bench.replay.base(p) + STEP * v for p, v in by.items()})
    return _moved(keys)


def _held(bench: Bench, site: Site, entry: Entry, kept: dict[Node, Tensor]) -> tuple[Held, Held]:
    """Return what queries and keys hold: samples through everything, positions beside ``kept``."""
    at = bench.replay.base(entry.node)
    generator = torch.Generator().manual_seed(5)
    weight = torch.rand(at.shape, generator=generator, dtype=torch.float64) + 0.5
    through = _respond(bench, site, entry, {}, weight)
    beside = _respond(bench, site, entry, kept, weight) if kept else through
    channels = at.dim() - 1 if at.dim() == 3 else -1
    own: dict[int, tuple[Tensor, Tensor]] = {}
    all_ways: dict[int, tuple[Tensor, Tensor]] = {}
    for axis, n in enumerate(at.shape):
        if n == 1 or axis == channels:
            continue
        ramp = torch.arange(n, dtype=torch.float64) / (n - 1)
        by = weight * ramp.view([n if a == axis else 1 for a in range(at.dim())])
        part = _respond(bench, site, entry, {}, by)
        all_ways[axis] = _pair(part, through, n)
        own[axis] = (
            _pair(_respond(bench, site, entry, kept, by), beside, n) if kept else all_ways[axis]
        )
    along = tuple(a for a, pair in own.items() if any(_varies(i, 1) for i in pair))
    apart = [a for a, p in all_ways.items() if a not in along and any(_varies(i, 0) for i in p)]
    batch = apart[0] if apart else None
    queries, keys = (
        _side(
            entry, tuple(at.shape), side, own, all_ways, beside[side], through[side], batch, along
        )
        for side in (0, 1)
    )
    return queries, keys


def _pair(
    part: tuple[Tensor, Tensor], whole: tuple[Tensor, Tensor], n: int
) -> tuple[Tensor, Tensor]:
    return _whole(part[0], whole[0], n), _whole(part[1], whole[1], n)


def _side(
    entry: Entry,
    sizes: tuple[int, ...],
    side: int,
    own: dict[int, tuple[Tensor, Tensor]],
    all_ways: dict[int, tuple[Tensor, Tensor]],
    beside: Tensor,
    through: Tensor,
    batch: int | None,
    along: tuple[int, ...],
) -> Held:
    moves, known = _moved(through), _moved(beside)
    samples = torch.zeros_like(moves, dtype=torch.long)
    if batch is not None:
        samples = all_ways[batch][side]
    positions = torch.zeros_like(samples)
    if not along and any(n > 1 for a, n in enumerate(sizes[:-1]) if a != batch):
        known &= False  # every row is made from several positions
    for axis in along:
        known &= own[axis][side] >= 0
        positions = positions * sizes[axis] + own[axis][side].clamp(min=0)
    nothing = torch.full_like(samples, -1)
    return Held(
        entry,
        moves,
        torch.where(moves, samples, nothing),
        torch.where(known, positions, nothing),
        batch,
        along,
    )


def _moved(response: Tensor) -> Tensor:
    size = response.abs().amax(-1)
    return size > FAINT * size.max().clamp(min=1e-300)


def _respond(
    bench: Bench, site: Site, entry: Entry, kept: dict[Node, Tensor], by: Tensor
) -> tuple[Tensor, Tensor]:
    """Return how queries and keys, (G, R, D), respond to a small push of the entry."""
    at = bench.replay.base(entry.node)
    return _responses(bench, site, {**kept, entry.node: at + STEP * by})


def _responses(bench: Bench, site: Site, change: dict[Node, Tensor]) -> tuple[Tensor, Tensor]:
    """Return how queries and keys, (G, R, D), respond to a small change."""
    assert site.q is not None and site.k is not None
    nodes = [site.q.node, site.k.node]
    moved = bench.replay.run(nodes, change)
    gaps = {
        n: torch.nan_to_num((m - bench.replay.base(n)) / STEP)
        for n, m in zip(nodes, moved, strict=True)
    }
    return score_operands(site, _Stand(bench, gaps))


def _whole(part: Tensor, whole: Tensor, n: int) -> Tensor:
    """Return (G, R) the index that each vector comes from, -1 where it comes from none or several."""
    square = (whole * whole).sum(-1)
    ratio = (part * whole).sum(-1) / square.clamp(min=1e-300)
    rest = (part - ratio[..., None] * whole).abs().amax(-1)
    found = ratio * (n - 1)
    index = found.round()
    size = whole.abs().amax(-1)
    ok = (found - index).abs() < CLEAN
    ok &= (rest * (n - 1) < CLEAN * size) & (size > FAINT * size.max().clamp(min=1e-300))
    ok &= (index >= 0) & (index < n)
    return torch.where(ok, index, torch.full_like(index, -1)).long()


def _varies(index: Tensor, axis: int) -> bool:
    """Return whether some known index differs from another along `axis` of (G, R)."""
    low = torch.where(index < 0, torch.full_like(index, 1 << 40), index).amin(axis)
    high = index.amax(axis)
    return bool(((high >= 0) & (high > low)).any())


def in_order(rows: Rows) -> bool:
    """Return whether rows and keys hold positions in rising order, as far as that is known."""
    for held in (*rows.queries, *rows.keys):
        for line in held.positions.tolist():
            known = [p for p in line if p >= 0]
            if known != sorted(known):
                return False
    return True
