"""The rotation of queries or keys, row by row: how much of which two channels each feature holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.grouped import Stand, grouped
from mha_lint.facts.order import score_operands
from mha_lint.facts.positions.slopes import spread
from mha_lint.facts.positions.turns import Turn, tables_of, turns_between
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source
from mha_lint.sites.trace import distinct, trace

MOST_GROUPS = 16
MOST_ROWS = 256
SOURCES = 4
"""Origins of one operand that are looked at: a latent and a rotated part are two."""


@dataclass(frozen=True, slots=True, eq=False)
class Turned:
    """The maps of pairs on the way to one operand, in the order of `mha_lint.facts.order`.

    Some groups (samples x heads) and rows are enough: ``samples`` and ``heads`` (G,), ``positions``
    (R,) of the source. ``one``, ``two`` (G, R, F): how much of its lower and of its upper channel
    each feature holds; ``low``, ``high`` (G, F) those channels, -1 where there is none.
    ``partner`` (G, F): the feature that holds the same two channels, -1 without one; ``shared``
    (G, F): how many do. ``whole``: F are all features of the operand, else those of the maps alone.
    """

    turns: tuple[Turn, ...]
    samples: Tensor
    heads: Tensor
    positions: Tensor
    one: Tensor
    two: Tensor
    low: Tensor
    high: Tensor
    partner: Tensor
    shared: Tensor
    whole: bool

    @property
    def mixes(self) -> bool:
        """Return whether any feature holds two channels: else all angles are zero, or there are none."""
        return bool((self.high >= 0).any())

    @property
    def paired(self) -> Tensor:
        """Return (G, F): whether a feature stands in a proper pair."""
        return (self.partner >= 0) & (self.shared == 1)


def operand_turns(
    bench: Bench, operand: Operand, given: dict[Node, Tensor] | None = None
) -> list[Turn]:
    """Return the maps of pairs on the way from the projections of `operand` to it."""
    found: dict[Node, Turn] = {}
    for source in vector_sources(bench, operand):
        for turn in turns_between(bench, source.node, operand.node, given):
            found.setdefault(turn.exit, turn)
    return list(found.values())


def vector_sources(bench: Bench, operand: Operand) -> list[Source]:
    """Return the origins of the vectors of `operand`: projections, states, a cache.

    An argument that moves the same elements as a projection does is a table, and holds no vectors.
    """
    main = operand.source
    found = [s for s in operand.sources if not s.learned][:SOURCES]
    if main is None or main.learned:
        return found
    held = trace(bench.replay, main.node, operand.node).responds
    return [
        s for s in found
        if s is main or s.kind != "input"
        or not bool((trace(bench.replay, s.node, operand.node).responds & held).any())
    ]  # fmt: skip


def given_tables(bench: Bench, operand: Operand) -> dict[Node, Tensor]:
    """Return the recorded values of float arguments that tables on the way to `operand` come from.

    A cosine that the caller passes is no data: other numbers would be no cosine.
    """
    found: dict[Node, Tensor] = {}
    recording = bench.recording
    for source in vector_sources(bench, operand):
        above = bench.dependence.ancestors(tables_of(bench, source.node, operand.node))
        for node, value in zip(recording.placeholders, recording.inputs, strict=True):
            if node in above and value.is_floating_point() and node is not source.node:
                found[node] = value.double()
    return found


def turned_of(
    bench: Bench, site: Site, operand: Operand, turns: list[Turn], *, queries: bool
) -> Turned | None:
    """Return `turns` of q or k in the order of the scores, None where they cannot be followed."""
    held = grouped(bench, site)
    groups = _chosen_groups(held.samples, held.heads)
    positions = (held.queries if queries else held.keys)[groups]
    count = positions.shape[1]
    rows = spread(count, MOST_ROWS)
    parts: list[tuple[Tensor, ...]] = []
    whole = True
    for turn in turns:
        part, clean = _gathered(bench, site, operand, turn, groups, rows, queries=queries)
        if part is None:
            return None
        whole &= clean
        parts.append(part)
    if whole and len(parts) > 1:
        parts = [_overlaid(parts)]
    line, first, second, a, b = (torch.cat(p, -1) for p in zip(*parts, strict=True))
    known = (first >= 0).any(-1).any(0)
    if not bool(known.any()):
        return None
    line, first, second, a, b = (x[:, known] for x in (line, first, second, a, b))
    return _structured(
        tuple(turns), held.samples[groups], held.heads[groups], positions[:, rows][:, known],
        (line, first, second, a, b), whole=whole,
    )  # fmt: skip


def _chosen_groups(samples: Tensor, heads: Tensor) -> Tensor:
    """Return some groups: the heads of the first sample, and those of one more."""
    wanted = distinct(samples)[:2]
    found = [int(g) for s in wanted for g in (samples == s).nonzero().flatten()[: MOST_GROUPS // 2]]
    return torch.tensor(sorted(found)) if found else torch.arange(min(len(heads), MOST_GROUPS))


def _gathered(
    bench: Bench,
    site: Site,
    operand: Operand,
    turn: Turn,
    groups: Tensor,
    rows: Tensor,
    *,
    queries: bool,
) -> tuple[tuple[Tensor, ...] | None, bool]:
    """Return line, first, second, a, b as (G, R, F), and whether F are the operand's features."""
    traced = trace(bench.replay, turn.exit, operand.node)
    fields = (turn.line, turn.first, turn.second, turn.a, turn.b)
    empty = (0, -1, -1, 0.0, 0.0)

    def arranged(index: Tensor) -> Tensor:
        stand = Stand(bench, {operand.node: index})
        q, k = score_operands(site, stand)
        return (q if queries else k)[groups][:, rows]

    if traced.all_clean:
        flat = arranged(traced.flat())
        known = flat >= 0
        picked = (f.reshape(-1)[flat.clamp(min=0)] for f in fields)
        filled = (p.masked_fill(~known, e) for p, e in zip(picked, empty, strict=True))
        return tuple(filled), True
    # A norm behind the rotation mixes the features, but no rows.
    clean = [a for a, yes in enumerate(traced.clean) if yes]
    features = [a for a, yes in enumerate(traced.clean) if not yes]
    place = torch.zeros_like(traced.index[0])
    for a in clean:
        place = place * traced.shape[a] + traced.index[a].clamp(min=0)
    place = torch.where(traced.responds, place, -1)
    held = arranged(place).amax(-1)
    if bool((held < 0).any()):
        return None, False
    order = (*clean, *features)
    width = math.prod(traced.shape[a] for a in features)
    return tuple(f.permute(order).reshape(-1, width)[held] for f in fields), False


def _overlaid(parts: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Put maps that each cover some of the features into one."""
    merged = parts[0]
    for part in parts[1:]:
        there = part[1] >= 0
        # Lines of different maps may have one number: keep them apart.
        shift = int(merged[0].max()) + 1
        moved = (part[0] + shift, *part[1:])
        merged = tuple(torch.where(there, n, o) for o, n in zip(merged, moved, strict=True))
    return merged


def _structured(
    turns: tuple[Turn, ...],
    samples: Tensor,
    heads: Tensor,
    positions: Tensor,
    fields: tuple[Tensor, ...],
    *,
    whole: bool,
) -> Turned:
    line, first, second, a, b = fields
    groups, _, features = first.shape
    fullest = (second >= 0).sum(-1).argmax(-1)
    at = torch.arange(groups)
    # A feature may read one channel at one row and two at another: any row with two tells them.
    pair_row = torch.where((second >= 0).any(1), (second >= 0).long().argmax(1), fullest[:, None])
    pick = (at[:, None], pair_row, torch.arange(features))
    low, high = first[pick], second[pick]
    low = torch.where(high >= 0, low, first.amax(1))
    one = torch.where(first == low[:, None], a, 0.0) + torch.where(
        (second == low[:, None]) & (second >= 0), b, 0.0
    )
    two = torch.where((first == high[:, None]) & (first >= 0), a, 0.0) + torch.where(
        (second == high[:, None]) & (second >= 0), b, 0.0
    )
    span = int(max(first.max(), second.max())) + 2
    # The line at one row for all: lines hold the position as well.
    here = line[at, fullest]
    key = (here * span + low) * span + high
    same = (key[:, :, None] == key[:, None, :]) & (high >= 0)[:, :, None] & (high >= 0)[:, None, :]
    same &= ~torch.eye(features, dtype=torch.bool)
    shared = same.sum(-1)
    partner = torch.where(shared == 1, same.long().argmax(-1), -1)
    return Turned(turns, samples, heads, positions, one, two, low, high, partner, shared, whole)
