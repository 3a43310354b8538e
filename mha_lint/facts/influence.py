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
from mha_lint.sites.dependence import is_number, op, operands, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.trace import influence_codes, varies_along

MOVE = 0.37
"""How far a position is moved: far beyond rounding, and too odd to meet a symmetry."""
SAME = 1e-11
"""Relative: a smaller change is rounding."""
MOST = 24
"""Positions that are moved one by one; of longer inputs as many, spread evenly, with both ends."""


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
            for user in bench.dependence.users(placeholder)
            if op(user) in ("embedding", "embedding_bag") and user in bench.dependence.live
        ]
    return found


def position_axis(bench: Bench, node: Node) -> int | None:
    """Return the axis of `node` along which the rows of queries or keys of some site run."""
    sizes = shape(bench.recording, node)
    for site in bench.sites:
        for member in site.all[:1]:
            for operand in (member.q, member.k, member.v):
                if operand is None or node not in bench.dependence.ancestors([operand.node]):
                    continue
                found = [
                    axis
                    for axis in range(len(sizes) - 1)
                    if sizes[axis] > 1 and _runs_along(bench, node, operand, axis)
                ]
                if len(found) == 1:
                    return found[0]
    return None


def _runs_along(bench: Bench, node: Node, operand: Operand, axis: int) -> bool:
    """Return whether the rows of `operand`, and no groups, come from different slices of `node`."""
    codes = influence_codes(bench.replay, node, operand.node, axis)
    codes = torch.where(codes == 0, torch.full_like(codes, -1), codes)
    return any(varies_along(codes, row) for row in operand.rows)


def reached(
    bench: Bench, entry: Entry, targets: Sequence[Node], positions: Sequence[int] | None = None
) -> tuple[list[int], list[Tensor]]:
    """Return the positions that were moved, and for each target a bool tensor (P, *target.shape).

    Element [p, ...] tells whether that element of the target changed when position p was moved.
    """
    assert entry.axis is not None
    at = bench.replay.base(entry.node)
    chosen = list(positions) if positions is not None else _spread(at.shape[entry.axis])
    generator = torch.Generator().manual_seed(11)
    push = MOVE * (0.5 + torch.rand(at.shape, generator=generator, dtype=torch.float64))
    before = [bench.replay.base(n) for n in targets]
    out: list[list[Tensor]] = [[] for _ in targets]
    for position in chosen:
        moved_in = at.clone()
        moved_in.select(entry.axis, position).add_(push.select(entry.axis, position))
        after = bench.replay.run(targets, {entry.node: moved_in})
        for rows, one, other in zip(out, before, after, strict=True):
            size = one.abs().nan_to_num(posinf=0.0, neginf=0.0)
            gap = (other - one).abs()
            rows.append((gap > SAME * size.clamp(min=1.0)) | (one.isnan() != other.isnan()))
    return chosen, [torch.stack(rows) for rows in out]


def _spread(count: int) -> list[int]:
    if count <= MOST:
        return list(range(count))
    return sorted({round(i * (count - 1) / (MOST - 1)) for i in range(MOST)})


def is_token_input(bench: Bench, node: Node) -> bool:
    """Return whether `node` is an argument of whole numbers that an embedding looks up."""
    return any(
        op(u) in ("embedding", "embedding_bag") and node in operands(u)
        for u in bench.dependence.users(node)
    )
