"""What the layers and tables behind an input say about its axis 0: samples or positions."""

from __future__ import annotations

import torch
from torch.fx import Node

from mha_lint.facts.axis_words import AxisVerdict
from mha_lint.facts.bench import Bench
from mha_lint.sites.dependence import is_number, op, operands, shape
from mha_lint.sites.source import CONVOLUTIONS, convolved

SAME = 1e-12
"""A change below this is rounding."""


def by_convolutions(bench: Bench, placeholder: Node) -> list[AxisVerdict]:
    """Return what convolutions say: they run over positions, and treat the samples apart."""
    below = bench.dependence.descendants([placeholder]) & bench.dependence.live
    wide = [
        n
        for n in sorted(below, key=bench.dependence.order.__getitem__)
        if op(n) in CONVOLUTIONS
        and isinstance(weight := convolved(n)[1], Node)
        and max(shape(bench.recording, weight)[2:]) > 1
    ]
    found: list[AxisVerdict] = []
    for node in wide[:1]:
        data, _ = convolved(node)
        assert isinstance(data, Node)
        before = bench.replay.base(data)
        if before.dim() != 2 + int(op(node)[4]):
            continue
        apart = _apart(bench, placeholder, data)
        if apart == [0]:
            found.append(AxisVerdict(True, "a convolution treats it as its samples"))
        elif apart and min(apart) > 1:
            found.append(AxisVerdict(False, "a convolution runs over it"))
    return found


def by_tables(bench: Bench, placeholder: Node) -> list[AxisVerdict]:
    """Return what a table that is added says: one that follows one axis alone holds positions.

    No table has a row for each sample of a batch.
    """
    below = bench.dependence.descendants([placeholder]) & bench.dependence.live
    for node in sorted(below, key=bench.dependence.order.__getitem__):
        sides = operands(node)
        if op(node) != "add" or len(sides) != 2 or not is_number(bench.recording, node):
            continue
        data = [n for n in sides if n in below]
        tables = [n for n in sides if not bench.dependence.on_data(n)]
        if len(data) != 1 or len(tables) != 1 or not is_number(bench.recording, tables[0]):
            continue
        sizes = shape(bench.recording, node)
        if len(sizes) < 3 or len(shape(bench.recording, tables[0])) < 2:
            continue
        table = bench.replay.base(tables[0]).expand(sizes)
        follows = [a for a in range(len(sizes) - 1) if _varies(table, a)]
        own = _apart(bench, placeholder, node)
        if len(follows) == len(own) == 1:
            what = "a table of positions is added along"
            if follows == own:
                return [AxisVerdict(False, f"{what} it")]
            value = bench.replay.base(placeholder)  # its own axes: heads are none of them
            others = range(1, value.dim() - int(value.is_floating_point()))
            if any(_apart(bench, placeholder, node, axis) == follows for axis in others):
                return [AxisVerdict(True, f"{what} another axis")]
        break
    return []


def _varies(table: torch.Tensor, axis: int) -> bool:
    return bool((table - table.narrow(axis, 0, 1)).abs().max() > SAME)


def _apart(bench: Bench, placeholder: Node, node: Node, axis: int = 0) -> list[int]:
    """Return the axes of `node` along which slice 0 of the input's `axis` stays apart."""
    before = bench.replay.base(node)
    moved = nudged(bench.replay.base(placeholder), axis)
    try:
        (after,) = bench.replay.run([node], {placeholder: moved})
    except (IndexError, RuntimeError):
        return []
    changed = (after - before).abs() > SAME
    along = [changed.movedim(a, 0).flatten(1).any(1) for a in range(before.dim())]
    return [a for a, hit in enumerate(along) if bool(hit.any()) and not bool(hit.all())]


def nudged(value: torch.Tensor, axis: int, index: int = 0) -> torch.Tensor:
    """Return `value` with one slice along `axis` changed."""
    moved_in = value.clone()
    first = moved_in.select(axis, index)
    if value.is_floating_point():
        first.add_(_noise(first))
    else:
        first.copy_(torch.where(first > 0, first - 1, first + 1))
    return moved_in


def _noise(like: torch.Tensor) -> torch.Tensor:
    """Return fixed noise: a norm in front would remove a constant."""
    generator = torch.Generator().manual_seed(19)
    return torch.rand(like.shape, generator=generator, dtype=like.dtype) + 0.1
