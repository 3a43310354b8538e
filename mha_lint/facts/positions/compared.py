"""Whether queries and keys are rotated alike: only then do scores depend on distances."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.positions.fit import lengths, of_partner
from mha_lint.facts.positions.pairs import Turned
from mha_lint.sites.operand import Operand
from mha_lint.sites.source import Source

NEAR = 1e-3
FARTHEST = 8
"""Shifts between queries and keys that are tried, in positions."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How the rotation of k differs from that of q: "opposite", "shifted" or "different".

    ``group``, ``row`` of q, ``other`` of k and ``feature`` show it.
    """

    fault: str
    shift: int = 0
    group: int = 0
    row: int = 0
    other: int = 0
    feature: int = 0


def difference(q: Turned, k: Turned, *, same_tokens: bool) -> Difference | None:
    """Return how the rotations of q and k differ in a way that distances do not explain."""
    if q.one.shape[0] != k.one.shape[0] or q.one.shape[2] != k.one.shape[2] or q.whole != k.whole:
        return None
    usable = q.paired & k.paired
    if not bool((q.partner == k.partner)[usable].all()) or not bool(usable.any()):
        return None
    rows, others = _matched(q, k)
    if not len(rows):
        return None
    columns = torch.equal(q.low[usable], k.low[usable]) and torch.equal(
        q.high[usable], k.high[usable]
    )
    if columns and _alike(q, k, rows, others, usable):
        return None
    if len(rows) < 2:
        return (
            Difference("different", 0, *_widest(q, k, rows, others, usable))
            if (columns and same_tokens)
            else None
        )
    one, two = _since_first(q, rows), _since_first(k, others)
    keep = usable[:, None]
    gap = _largest((one[0] - two[0]).abs() + (one[1] - two[1]).abs(), keep)
    if gap < NEAR:
        shift = _shift(q, k, usable) if columns and same_tokens else 0
        return Difference("shifted", shift) if shift else None
    mirrored = _largest((one[0] - two[0]).abs() + (one[1] + two[1]).abs(), keep)
    place = _widest_turn(one, two, keep, rows, others)
    if mirrored < NEAR:
        return Difference("opposite", 0, *place)
    return Difference("different", 0, *place) if same_tokens else None


def stays(bench: Bench, operand: Operand, source: Source) -> bool:
    """Return whether equal content at all positions makes equal rows of `operand`."""
    replay = bench.replay
    at = replay.base(source.node)
    generator = torch.Generator().manual_seed(31)
    shape = [1 if a in source.data_axes else n for a, n in enumerate(at.shape)]
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64).expand(at.shape)
    (rows,) = replay.run([operand.node], {source.node: drawn.contiguous()})
    traced = operand.trace
    if traced is None or operand.source is not source:
        return False
    for axis in operand.rows:
        first = rows.select(axis, 0).unsqueeze(axis)
        if bool(((rows - first).abs() > 1e-9 * rows.abs().max()).any()):
            return False
    return True


def _matched(q: Turned, k: Turned) -> tuple[Tensor, Tensor]:
    """Return the rows of q and of k in the first group that hold the same position."""
    same = (q.positions[0][:, None] == k.positions[0][None]) & (q.positions[0][:, None] >= 0)
    rows = same.any(1).nonzero().flatten()
    return rows, same.long().argmax(1)[rows]


def _unit(turned: Turned) -> tuple[Tensor, Tensor]:
    size = lengths(turned).clamp(min=1e-300)
    return turned.one / size, turned.two / size


def _alike(q: Turned, k: Turned, rows: Tensor, others: Tensor, usable: Tensor) -> bool:
    return all(
        _largest((a[:, rows] - b[:, others]).abs(), usable[:, None]) < NEAR
        for a, b in zip(_unit(q), _unit(k), strict=True)
    )


def _largest(gaps: Tensor, keep: Tensor) -> float:
    return float(torch.where(keep, gaps, torch.zeros_like(gaps)).max())


def _since_first(turned: Turned, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of the turn of each pair since the first of `rows`."""
    one, two = (x[:, rows] for x in _unit(turned))
    whole = _unit(turned)
    partner = tuple(of_partner(turned, x)[:, rows] for x in whole)
    cosine = one * one[:, :1] + two * two[:, :1]
    sine = one * partner[0][:, :1] + two * partner[1][:, :1]
    return cosine, sine


def _widest(
    q: Turned, k: Turned, rows: Tensor, others: Tensor, usable: Tensor
) -> tuple[int, int, int, int]:
    gaps = torch.zeros_like(q.one[:, rows])
    for a, b in zip(_unit(q), _unit(k), strict=True):
        gaps = gaps + (a[:, rows] - b[:, others]).abs()
    return _place(torch.where(usable[:, None], gaps, torch.zeros_like(gaps)), rows, others)


def _widest_turn(
    one: tuple[Tensor, Tensor],
    two: tuple[Tensor, Tensor],
    keep: Tensor,
    rows: Tensor,
    others: Tensor,
) -> tuple[int, int, int, int]:
    gaps = (one[0] - two[0]).abs() + (one[1] - two[1]).abs()
    return _place(torch.where(keep, gaps, torch.zeros_like(gaps)), rows, others)


def _place(gaps: Tensor, rows: Tensor, others: Tensor) -> tuple[int, int, int, int]:
    group, row, feature = (int(p) for p in torch.unravel_index(gaps.argmax(), gaps.shape))
    return group, int(rows[row]), int(others[row]), feature


def _shift(q: Turned, k: Turned, usable: Tensor) -> int:
    """Return by how many positions the keys are turned further than the queries, 0 if by none."""
    rows = min(q.one.shape[1], k.one.shape[1])
    for shift in (s for n in range(1, min(FARTHEST, rows - 1) + 1) for s in (n, -n)):
        ahead = torch.arange(max(0, shift), rows + min(0, shift))
        if len(ahead) and _alike(q, k, ahead, ahead - shift, usable):
            return shift
    return 0


def turn_of(turned: Turned, group: int, row: int, feature: int) -> float:
    """Return the angle in radians, between 0 and pi, of one pair at one row."""
    one, two = (x[group, row, feature] for x in _unit(turned))
    return math.atan2(abs(float(two)), float(one))
