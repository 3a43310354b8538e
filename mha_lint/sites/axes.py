"""Axes of scores and operands: by label, by what varies along them, carried from node to node."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from mha_lint.capture import Replay
from mha_lint.sites.contraction import Contraction, Labels
from mha_lint.sites.operand import Operand
from mha_lint.sites.trace import varies_along


def axes_of(labels: Labels, wanted: frozenset[int]) -> tuple[int, ...]:
    """Return the axes whose label is among `wanted`."""
    return tuple(i for i, x in enumerate(labels) if x is not None and x in wanted)


def rows_by_data(operand: Operand) -> Operand:
    """Count free axes that hold heads (grouped queries, one shared key head) among the groups.

    What stays are the axes of positions, or, where there is but one (a class token), that of one.
    """
    by_data = tuple(a for a in operand.rows if operand.varies[a].data)
    if by_data == operand.rows:
        return operand
    heads = tuple(a for a in operand.rows if a not in by_data and operand.varies[a].channels)
    rows = tuple(a for a in operand.rows if a not in heads)
    if not rows or (not by_data and not _is_single(operand, rows)):
        return operand
    return replace(operand, rows=rows, groups=tuple(sorted((*operand.groups, *heads))))


def _is_single(operand: Operand, rows: tuple[int, ...]) -> bool:
    """Return whether `rows` of the operand are of size one, as far as it was traced."""
    traced = operand.trace
    return traced is not None and all(traced.responds.shape[a] == 1 for a in rows)


def single(operand: Operand, replay: Replay) -> bool:
    """Return whether the operand holds one row only, so that nothing can vary along it."""
    sizes = replay.base(operand.node).shape
    count = 1
    for axis in operand.rows:
        count *= sizes[axis]
    return count == 1


def meets_own_key(q: Operand, k: Operand, replay: Replay) -> bool:
    """Return whether the heads of each place meet one key, or copies of one: that of their place.

    So one shared key head ends where heads stand in the place of positions. Samples alone are no
    places: heads of a whole sample may well ask it as a whole. Nor is it known where what the keys
    are made from has an axis of one: there may be more of them in another call.
    """
    for operand in (q, k):
        source, traced = operand.source, operand.trace
        if source is None or traced is None or source.kind != "projection":
            return False
        if any(traced.shape[a] == 1 for a in source.data_axes):
            return False
    of_heads = any(q.varies[a].channels for a in q.rows) and not q.position_axes
    copies = not any(k.varies[a].data or k.varies[a].channels for a in k.rows)
    whole = all(
        any(o.varies[a].channels for a in o.features)
        and not any(o.varies[a].data for a in o.features)
        for o in (q, k)
    )
    places, others = (frozenset().union(*(o.varies[a].data for a in o.groups)) for o in (q, k))
    alone = not single(q, replay) and len(places) > 1 and places == others
    return of_heads and copies and whole and alone


def single_keys(score: Contraction, sizes: tuple[int, ...]) -> set[int]:
    """Return the labels of the keys where there is one only, and several queries; else none.

    `sizes`: those of the scores.
    """
    sized = dict(zip(score.out_labels, sizes, strict=True))
    sides = [set(score.free(left)) for left in (True, False)]
    short = [side for side in sides if side and all(sized[x] == 1 for x in side)]
    return short[0] if len(short) == 1 and all(sides) else set()


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
