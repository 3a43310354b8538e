"""Which positions of an input reach which elements of a tensor, over the whole subject.

Each position is moved on its own, in float64; masks stay as recorded. Token ids cannot be moved by
a little: what is looked up for them is moved instead, so masks made from ids stay as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Kind
from mha_lint.sites.dependence import is_number, op, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.trace import influence_codes, varies_along

MOVE = 0.37
"""How far a position is moved: far beyond rounding, and too odd to meet a symmetry."""
SAME = 1e-11
"""Relative: a smaller change is rounding."""
MOST = 24
"""Positions that are moved one by one; of longer inputs as many, spread evenly, with both ends."""

FEW = 6
"""Positions that are moved to see whether rows are mixed at all."""
MOSTLY = 0.8
"""The share of positions whose own row must move most, for rows and positions to be aligned."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where positions enter: a float argument, or what is looked up for token ids.

    ``axis``: the axis of `node` that holds positions, None where that is not known.
    """

    node: Node
    argument: str
    axis: int | None


def entries(bench: Bench) -> list[Entry]:
    """Return the entries of the subject, those of (B, T, C) and (B, T) arguments."""
    found: list[Entry] = []
    recording = bench.recording
    for placeholder, name in zip(recording.placeholders, recording.input_names, strict=True):
        if placeholder not in bench.dependence.live:
            continue
        if is_number(recording, placeholder):
            if len(shape(recording, placeholder)) >= 3:
                found.append(Entry(placeholder, name, position_axis(bench, placeholder)))
            continue
        found += [
            Entry(user, name, position_axis(bench, user))
            for user in _look_ups(bench, placeholder)
            if user in bench.dependence.live
        ]
    return found


def _look_ups(bench: Bench, placeholder: Node) -> list[Node]:
    """Return what is looked up for the whole numbers of `placeholder`, shifted or cut on the way."""
    found: list[Node] = []
    front, seen = [placeholder], {placeholder}
    while front:
        for user in bench.dependence.users(front.pop()):
            if op(user) in ("embedding", "embedding_bag"):
                found.append(user)
            elif user not in seen and is_whole(bench, user):
                seen.add(user)
                front.append(user)
    return sorted(set(found), key=bench.dependence.order.__getitem__)


def is_whole(bench: Bench, node: Node) -> bool:
    """Return whether `node` is a tensor of whole numbers, no mask."""
    value = bench.recording.values.get(node)
    return (
        isinstance(value, Tensor)
        and value.dim() > 0
        and not value.is_floating_point()
        and not value.is_complex()
        and value.dtype is not torch.bool
    )


def position_axis(bench: Bench, node: Node) -> int | None:
    """Return the axis of `node` along which the rows of queries or keys of some site run."""
    sizes = shape(bench.recording, node)
    for site in bench.sites:
        for member in site.all[:1]:
            for operand in (member.q, member.k, member.v):
                if operand is None or node not in bench.dependence.ancestors([operand.node]):
                    continue
                # Channels stand last, but in (B, C, T).
                for axes in (range(len(sizes) - 1), [len(sizes) - 1]):
                    found = [
                        axis
                        for axis in axes
                        if sizes[axis] > 1
                        and _runs_along(bench, node, operand, axis, _rows(member, operand))
                    ]
                    if len(found) == 1:
                        return found[0]
                if not found and (mixed := _mixed_axis(bench, node, operand)) is not None:
                    return mixed
    return None


def _mixed_axis(bench: Bench, node: Node, operand: Operand) -> int | None:
    """Return the axis of `node` whose slices each move a row of their own most, if they move all."""
    if len(operand.rows) != 1:
        return None
    sizes = shape(bench.recording, node)
    found: list[int] = []
    for axis, size in enumerate(sizes):
        if not 2 < size <= MOST:
            continue
        positions = some(size)
        _, (change,) = changed(bench, Entry(node, "", axis), [operand.node], positions)
        if dominant_shift(positions, along(change, operand.rows[0])) is not None:
            found.append(axis)
    return found[0] if len(found) == 1 else None


def _rows(site: Site, operand: Operand) -> tuple[int, ...]:
    """Return the axes of `operand` that hold positions; linear attention sums keys over them first."""
    summed = site.kind is Kind.LINEAR and operand is not site.v
    return operand.features if summed else operand.rows


def _runs_along(
    bench: Bench, node: Node, operand: Operand, axis: int, rows: tuple[int, ...]
) -> bool:
    """Return whether `rows` of `operand`, and no groups, come from different slices of `node`."""
    codes = influence_codes(bench.replay, node, operand.node, axis)
    codes = torch.where(codes == 0, torch.full_like(codes, -1), codes)
    return any(varies_along(codes, row) for row in rows)


def reached(
    bench: Bench,
    entry: Entry,
    targets: Sequence[Node],
    positions: Sequence[int] | None = None,
    hold: Sequence[Node] = (),
) -> tuple[list[int], list[Tensor]]:
    """Return the positions that were moved, and for each target a bool tensor (P, *target.shape).

    Element [p, ...] tells whether that element of the target changed when position p was moved.
    What is in `hold` keeps its value: influence does not pass through it.
    """
    chosen, changes = changed(bench, entry, targets, positions, hold)
    return chosen, [c > 0 for c in changes]


def changed(
    bench: Bench,
    entry: Entry,
    targets: Sequence[Node],
    positions: Sequence[int] | None = None,
    hold: Sequence[Node] = (),
) -> tuple[list[int], list[Tensor]]:
    """Return what `reached` does, with the size of each change in place of the bools.

    0 where nothing changed but by rounding, infinite where a number became none.
    """
    assert entry.axis is not None
    at = bench.replay.base(entry.node)
    chosen = list(positions) if positions is not None else _spread(at.shape[entry.axis])
    generator = torch.Generator().manual_seed(11)
    push = MOVE * (0.5 + torch.rand(at.shape, generator=generator, dtype=torch.float64))
    held = {n: bench.replay.base(n) for n in hold if n is not entry.node}
    before = [bench.replay.base(n) for n in targets]
    out: list[list[Tensor]] = [[] for _ in targets]
    for position in chosen:
        moved_in = at.clone()
        moved_in.select(entry.axis, position).add_(push.select(entry.axis, position))
        after = bench.replay.run(targets, {**held, entry.node: moved_in})
        for rows, one, other in zip(out, before, after, strict=True):
            rows.append(_gap(one, other))
    return chosen, [torch.stack(rows) for rows in out]


def some(count: int) -> list[int]:
    """Return a few positions of `count` to move: the ends, and others spread between."""
    return sorted({round(i * (count - 1) / (FEW - 1)) for i in range(FEW)})


def along(change: Tensor, axis: int) -> Tensor:
    """Return (P, n): by how much each slice along `axis` of a target changes in all; `change` is
    (P, *shape).
    """
    rows = change.movedim(axis + 1, 1)
    return rows.reshape(*rows.shape[:2], -1).sum(-1)


def dominant_shift(positions: Sequence[int], rows: Tensor) -> int | None:
    """Return the constant distance from a position to the row that it moves most, if there is one.

    `rows` (P, R): by how much each row changes when each of `positions` is moved.
    """
    best, top = rows.max(1)
    known = [(int(t) - p) for p, t, b in zip(positions, top, best, strict=True) if float(b) > 0]
    if len(known) < 2:
        return None
    shift = max(set(known), key=known.count)
    enough = known.count(shift) >= max(2, MOSTLY * len(known))
    return shift if enough else None


def _gap(one: Tensor, other: Tensor) -> Tensor:
    if one.shape != other.shape:
        raise ValueError("the data decides how many elements there are")
    if not one.is_floating_point():
        return (one != other).double()
    size = one.abs().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    gap = (other - one).abs()
    gap = torch.where(one.isnan() != other.isnan(), torch.inf, gap.nan_to_num(nan=0.0))
    return torch.where(gap > SAME * size.clamp(min=1.0), gap, torch.zeros_like(gap))


def _spread(count: int) -> list[int]:
    if count <= MOST:
        return list(range(count))
    return sorted({round(i * (count - 1) / (MOST - 1)) for i in range(MOST)})
