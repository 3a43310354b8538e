"""Axes of scores and operands: by label, by what varies along them, carried from node to node."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from mha_lint.capture import Replay
from mha_lint.sites.contraction import Labels
from mha_lint.sites.operand import Operand
from mha_lint.sites.trace import varies_along


def axes_of(labels: Labels, wanted: frozenset[int]) -> tuple[int, ...]:
    """Return the axes whose label is among `wanted`."""
    return tuple(i for i, x in enumerate(labels) if x is not None and x in wanted)


def rows_by_data(operand: Operand) -> Operand:
    """Count free axes that hold heads (grouped queries, one shared key head) among the groups."""
    by_data = tuple(a for a in operand.rows if operand.varies[a].data)
    if not by_data or by_data == operand.rows:
        return operand
    heads = tuple(a for a in operand.rows if a not in by_data and operand.varies[a].channels)
    rows = tuple(a for a in operand.rows if a not in heads)
    return replace(operand, rows=rows, groups=tuple(sorted((*operand.groups, *heads))))


def single(operand: Operand, replay: Replay) -> bool:
    """Return whether the operand holds one row only, so that nothing can vary along it."""
    sizes = replay.base(operand.node).shape
    count = 1
    for axis in operand.rows:
        count *= sizes[axis]
    return count == 1


def rows_summed(operand: Operand, summed: frozenset[int], labels: Labels) -> Operand:
    """Count the rows of k that the sum with V leaves alone among the groups.

    Where learned queries are the same for every sample, only k and v have an axis of samples.
    """
    rows = tuple(a for a in operand.rows if labels[a] in summed)
    if not rows or rows == operand.rows:
        return operand
    rest = tuple(a for a in operand.rows if a not in rows)
    return replace(operand, rows=rows, groups=tuple(sorted((*operand.groups, *rest))))


def varying(origin: tuple[Tensor, ...], labels: Labels, wanted: frozenset[int]) -> list[int]:
    """Return the axes of the scores that vary along the axes of the weights called `wanted`."""
    axes = axes_of(labels, wanted)
    return [a for a, index in enumerate(origin) if any(varies_along(index, i) for i in axes)]
