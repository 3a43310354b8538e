"""An operand as it was laid out before several of its positions were made one."""

from __future__ import annotations

import dataclasses

from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.sites.dependence import is_number, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.source import Source
from mha_lint.sites.trace import Trace, depends_on_values, trace

PUSH = 3.0
"""Enough for a maximum to move to the slice that is pushed."""


def before_pool(bench: Bench, operand: Operand, source: Source) -> tuple[Operand, Trace] | None:
    """Return `operand` by the layout that it had before one axis was pooled.

    A maximum takes each element from a position that the data picks: where elements come from tells
    nothing behind it, and all in front of it.
    """
    wanted = shape(bench.recording, operand.node)
    for node in reversed(bench.dependence.between(source.node, operand.node)):
        if not is_number(bench.recording, node):
            continue
        before = shape(bench.recording, node)
        if len(before) != len(wanted) + 1:
            continue
        traced = trace(bench.replay, source.node, node)
        if not traced.all_clean or not bool(traced.responds.all()):
            continue
        axis = _pooled_axis(bench, node, operand.node, before, wanted)
        if axis is None or depends_on_values(bench.replay, source.node, node):
            return None
        kept = Trace(
            traced.shape,
            tuple(index.select(axis, 0) for index in traced.index),
            traced.clean,
            traced.responds.select(axis, 0),
            None,
        )
        varies = bench.finder.operands.variations(source, kept, operand.node, operand.features)
        return dataclasses.replace(operand, varies=varies, trace=kept), kept
    return None


def _pooled_axis(
    bench: Bench, node: Node, target: Node, before: tuple[int, ...], wanted: tuple[int, ...]
) -> int | None:
    """Return the axis of `node` that `target` lacks: along all others a slice moves its own alone."""
    for axis in range(len(before)):
        if before[:axis] + before[axis + 1 :] != wanted:
            continue
        others = [a for a in range(len(before)) if a != axis and before[a] > 1]
        if all(
            _stays_apart(bench, node, target, other, other - (other > axis)) for other in others
        ):
            return axis
    return None


def _stays_apart(bench: Bench, node: Node, target: Node, axis: int, own: int) -> bool:
    """Return whether a slice along `axis` of `node` moves just its own along `own` of `target`."""
    moved_in = bench.replay.base(node).clone()
    moved_in.select(axis, 0).add_(PUSH)
    (moved,) = bench.replay.run([target], {node: moved_in})
    changed = moved != bench.replay.base(target)
    rest = changed.narrow(own, 1, changed.shape[own] - 1)
    return bool(changed.any()) and not bool(rest.any())
