"""The rows of a site, and which of them a moved position moves.

Rows are counted as the mask counts them: query i and key j of one (T_q, T_k) matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.influence import Entry, along, changed, dominant_shift
from mha_lint.facts.order import score_operands
from mha_lint.sites.site import Site


class _Stand:
    """Holds numbers of elements in the place of the elements."""

    def __init__(self, bench: Bench, values: dict[Node, Tensor]) -> None:
        self._bench = bench
        self._values = values

    def base(self, node: Node) -> object:
        return self._values.get(node, self._bench.replay.base(node))


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """For each operand of a site that has rows: (R, N) the flat elements of each row's vectors."""

    q: Tensor
    k: Tensor
    v: Tensor | None


def rows_of(bench: Bench, site: Site) -> Rows:
    """Return which elements make up each row of queries, keys and values (`site` has a score)."""
    assert site.q is not None and site.k is not None
    numbered = {
        node: torch.arange(bench.replay.base(node).numel()).reshape(bench.replay.base(node).shape)
        for node in (site.q.node, site.k.node)
    }
    q, k = score_operands(site, _Stand(bench, numbered))
    v = _value_rows(bench, site, k.shape[1])
    return Rows(_by_row(q), _by_row(k), v)


def _by_row(elements: Tensor) -> Tensor:
    """Turn (G, R, D) into (R, G * D)."""
    return elements.transpose(0, 1).flatten(1)


def _value_rows(bench: Bench, site: Site, count: int) -> Tensor | None:
    node, labels = site.value.side(not site.weights_left)
    axes = [a for a, label in enumerate(labels) if label is not None and label in site.value.summed]
    value = bench.replay.base(node)
    if len(axes) != 1 or value.shape[axes[0]] != count:
        return None
    numbers = torch.arange(value.numel()).reshape(value.shape)
    return numbers.movedim(axes[0], 0).flatten(1)


def context_axis(bench: Bench, site: Site) -> int | None:
    """Return the axis of the context along which the queries run in the order of the mask's rows."""
    if len(site.row_axes) != 1:
        return None
    count = bench.replay.base(site.scores).shape[site.row_axes[0]]
    _, labels = site.value.side(site.weights_left)
    index = site.origin[site.row_axes[0]]
    for label in site.value.free(site.weights_left):
        axis, out = labels.index(label), site.value.out_labels.index(label)
        if index.shape[axis] != count or bench.replay.base(site.context).shape[out] != count:
            continue
        order = torch.arange(count).view([count if a == axis else 1 for a in range(index.dim())])
        if bool(((index == order) | (index < 0)).all()):
            return out
    return None


def contexts(bench: Bench) -> list[Node]:
    """Return the contexts of all sites at which one position can learn of another."""
    return [m.context for s in bench.sites for m in s.all]


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """``rows`` (P, R): by how much each row changes in all when each of ``positions`` is moved.

    ``own``: what to add to a position to get its row, None where that cannot be told. ``apart``:
    each position moves one row, and no two the same: nothing is mixed, in whatever order.
    """

    positions: tuple[int, ...]
    rows: Tensor
    own: int | None
    apart: bool

    def early(self) -> tuple[int, int, float] | None:
        """Return (position, row of an earlier position, change) of the largest leak, if any."""
        if self.own is None or self.apart:
            return None
        place = torch.tensor(self.positions)[:, None] + self.own
        leak = torch.where(torch.arange(self.rows.shape[1]) < place, self.rows, 0.0)
        if not bool((leak > 0).any()):
            return None
        p, row = divmod(int(leak.argmax()), leak.shape[1])
        return self.positions[p], row, float(leak[p, row])


def moves(positions: Sequence[int], change: Tensor, rows: Tensor, length: int) -> Moves:
    """Return how `rows` (R, N) of one tensor move; `change` is (P, *its shape)."""
    moved = change.reshape(len(positions), -1)[:, rows.reshape(-1)]
    return moves_of(positions, moved.reshape(len(positions), *rows.shape).sum(-1), length)


def moves_of(positions: Sequence[int], rows: Tensor, length: int) -> Moves:
    """Return the moves of rows that are known by now; `length`: how many positions there are."""
    hit = rows > 0
    apart = bool((hit.sum(1) <= 1).all() and (hit.sum(0) <= 1).all())
    return Moves(tuple(positions), rows, _own(positions, rows, length), apart)


def _own(positions: Sequence[int], rows: Tensor, length: int) -> int | None:
    """Return what to add to a position to get its row.

    With as many rows as positions it is 0: a causal convolution may move the next row more, a centred
    one the row before, but then each position moves its own row as well. Rows that all positions
    move alike (a summary of them) are of no position.
    """
    extra = rows.shape[1] - length
    most = dominant_shift(positions, rows)
    hit = rows > 0
    if most is None and not bool((hit != hit[:1]).any()):
        return None
    if most is None:
        return extra if extra >= 0 else None
    if extra == 0 and all(bool(hit[i, p]) for i, p in enumerate(positions)):
        return 0
    return min(most, extra) if extra >= 0 else most


def held_moves(
    bench: Bench, entry: Entry, targets: Sequence[Node], positions: Sequence[int] | None = None
) -> tuple[list[int], list[Tensor]]:
    """Return `changed` with the contexts of all sites held: what passes by no attention."""
    hold = [n for n in contexts(bench) if n is not entry.node]
    return changed(bench, entry, targets, positions, hold)


def axis_moves(positions: Sequence[int], change: Tensor, axis: int, length: int) -> Moves:
    """Return how the slices along `axis` of a target move; `change` is (P, *target.shape)."""
    return moves_of(positions, along(change, axis), length)


def aligned_axis(positions: Sequence[int], change: Tensor) -> int | None:
    """Return the axis of a target on which each position moves a row of its own the most.

    Of several (as many samples as positions) the one with the sharpest difference.
    """
    best: tuple[float, int] | None = None
    for axis in range(change.dim() - 1):
        if change.shape[axis + 1] < 2:
            continue
        rows = along(change, axis)
        if dominant_shift(positions, rows) is None:
            continue
        rest = rows.sum(1) - rows.amax(1)
        share = float((rest / rows.sum(1).clamp(min=1e-300)).nan_to_num(nan=1.0).mean())
        if best is None or share < best[0]:
            best = (share, axis)
    return best[1] if best is not None else None
