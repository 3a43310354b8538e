"""Whether what is added to the tokens by position tells the positions of one sequence apart."""

from __future__ import annotations

import itertools
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.places import span_of
from mha_lint.facts.positions.origins import follows_input
from mha_lint.facts.positions.pages import Placed, placed_on_one, placed_on_two, restart_of
from mha_lint.facts.positions.repeats import Repeats, repeats_of
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Known, NotApplicable
from mha_lint.model.position_facts import RepeatedPositions
from mha_lint.sites.dependence import is_number, op, operands, shape
from mha_lint.sites.trace import trace, varies_along

SAME = 1e-9
FEWEST = 3
"""Tokens that a sequence must have for its positions to be judged."""
WHAT = "the position embedding"


@dataclass(frozen=True, slots=True, eq=False)
class Added:
    """Something that is added to the tokens: ``rows`` (T, ...) by position, ``samples`` (B, ...).

    ``node`` adds ``side``. ``placed``: the same in the order of what the projections read.
    """

    node: Node
    side: Node
    rows: Tensor
    samples: Tensor
    placed: Placed


@unless_data_decides
def measure_absolute(bench: Bench) -> Fact[RepeatedPositions | None]:
    """Return positions of one sequence to which the same is added, None where all are told apart."""
    seen = False
    inside = bench.dependence.descendants([m.context for s in bench.sites for m in s.all])
    for reads, axis in _streams(bench):
        added, paged = _added(bench, reads, axis, inside)
        seen |= bool(added)
        whole = [a for a in added if bool(a.placed.there.all())]
        found = _judged(bench, whole) or _restarted(bench, reads, added, paged)
        if found is not None:
            return Known(found, "what is added to equal tokens was compared")
    if not seen:
        return NotApplicable("nothing is added to the tokens by position")
    return Known(None, "what is added to equal tokens differs from position to position")


def _streams(bench: Bench) -> list[tuple[Node, int]]:
    """Return what the projections of queries and keys read, each with its axis of positions."""
    found: dict[Node, int] = {}
    for site in bench.sites:
        for operand in (site.all[0].q, site.all[0].k):
            source = operand.source if operand is not None else None
            if operand is None or source is None or source.learned:
                continue
            reads = source.reads or source.node
            sizes = shape(bench.recording, reads)
            if len(operand.position_axes) != 1 or len(sizes) < 3:
                continue
            (axis,) = operand.position_axes
            kept = sizes[:-1] == shape(bench.recording, source.node)[: len(sizes) - 1]
            if kept and axis < len(sizes) - 1 and sizes[axis] >= FEWEST:
                found.setdefault(reads, axis)
    return list(found.items())


def _added(
    bench: Bench, reads: Node, axis: int, inside: AbstractSet[Node]
) -> tuple[list[Added], list[Placed]]:
    """Return what is added to the tokens before `reads`, attention before it left aside.

    Besides, what is added where the sequence is kept on two axes.
    """
    on_data, order = bench.dependence.on_data, bench.dependence.order.__getitem__
    found: list[Added] = []
    paged: list[Placed] = []
    for node in sorted(bench.dependence.ancestors([reads]) - inside, key=order):
        if not is_number(bench.recording, node) or not on_data(node):
            continue
        numbers = [n for n in operands(node) if is_number(bench.recording, n)]
        if len(numbers) != 2:
            continue
        for data, side in (numbers, numbers[::-1]):
            if on_data(data) and len(shape(bench.recording, data)) > 2:
                one = _one(bench, reads, axis, node, data, side)
                if isinstance(one, Added):
                    found.append(one)
                elif one is not None:
                    paged.append(one)
                if one is not None:
                    break
    return found, paged


def _one(
    bench: Bench, reads: Node, axis: int, node: Node, data: Node, side: Node
) -> Added | Placed | None:
    sized = shape(bench.recording, data)
    if shape(bench.recording, node) != sized or follows_input(bench, (side,)):
        return None
    zeros = torch.zeros(sized, dtype=torch.float64)
    (low,), (high,) = (bench.replay.run([node], {data: zeros + by}) for by in (0.0, 1.0))
    if not bool(((high - low - 1).abs() < SAME).all()):
        return None
    traced = trace(bench.replay, node, reads)
    rank = len(shape(bench.recording, reads))
    clean = [a for a in range(len(sized)) if traced.clean[a] and sized[a] > 1]
    along = [a for a in clean if varies_along(traced.index[a], axis)]
    others = [
        a for a in clean
        if any(varies_along(traced.index[a], b) for b in range(rank - 1) if b != axis)
    ]  # fmt: skip
    if set(along) & set(others) or len(others) > 1:
        return None
    places = tuple(_along(traced.index[a], axis) for a in along)
    if len(along) == 2:
        return placed_on_two(node, side, low.movedim(along, (0, 1)), places)
    if len(along) != 1 or (sized[along[0]] < FEWEST and bool((places[0] >= 0).all())):
        return None
    samples = low.movedim(others[0], 0) if others else low[None]
    rows = low.movedim(along[0], 0)
    return Added(node, side, rows, samples, placed_on_one(node, side, rows, places[0]))


def _along(index: Tensor, axis: int) -> Tensor:
    """Return (T,): the index that each position along `axis` comes from, -1 if from none."""
    return index.movedim(axis, 0).flatten(1).amax(1)


def _judged(bench: Bench, added: list[Added]) -> RepeatedPositions | None:
    moving = [a for a in added if _moves(a.rows)]
    for one in added:
        if not _moves(one.rows) and one.samples.shape[0] > 1 and _moves(one.samples):
            length = one.rows.shape[0]
            return RepeatedPositions("batch", WHAT, 0, 1, length - 1, length, span_of(one.node))
    if moving:
        joint = torch.cat([a.rows.flatten(1) for a in moving], -1)
        found = repeats_of(joint, first_may_repeat=False)
        if found is None or found.fault == "same":
            return None
        for one in moving:
            at = _counted(bench, one.side, len(joint), found)
            if at is not None:
                return _repeated(found, len(joint), at)
        return None
    for one in added:
        at = _looked_up(bench, one)
        if at is not None:
            length = one.rows.shape[0]
            return _repeated(Repeats("same", 0, 1, length - 1), length, at)
    return None


def _restarted(
    bench: Bench, reads: Node, added: list[Added], paged: list[Placed]
) -> RepeatedPositions | None:
    placed = [*(a.placed for a in added), *paged]
    found = restart_of(bench, reads, placed)
    if found is None:
        return None
    length = len(placed[0].rows)
    return RepeatedPositions(
        "restarted", WHAT, found.first, found.second, found.count, length, found.span
    )


def _repeated(found: Repeats, length: int, at: Node) -> RepeatedPositions:
    return RepeatedPositions(
        found.fault, WHAT, found.first, found.second, found.count, length, span_of(at)
    )


def _moves(rows: Tensor) -> bool:
    return bool(((rows - rows[:1]).abs() > SAME).any())


def _counted(bench: Bench, side: Node, length: int, found: Repeats) -> Node | None:
    """Return where the numbers of the positions first repeat, if positions are numbered at all.

    Numbers that all differ at first, and go up one by one until they repeat, are positions; kinds
    of tokens are not.
    """
    apart = False
    for node, numbers in _sequences(bench, side, length):
        apart |= len(set(numbers)) == length
        again = numbers[found.first] == numbers[found.second]
        steps = [b - a for a, b in itertools.pairwise(numbers) if b != a]
        usual = max(set(steps), key=steps.count) if steps else 0
        if apart and again and usual and sum(s != usual for s in steps) <= found.count // 2:
            return node
    return None


def _looked_up(bench: Bench, added: Added) -> Node | None:
    """Return where one row of a table of positions is asked for by every token."""
    length = added.rows.shape[0]
    for lookup in bench.dependence.ancestors([added.side]):
        if op(lookup) != "embedding" or bench.dependence.on_data(lookup):
            continue
        table = next((n for n in operands(lookup) if is_number(bench.recording, n)), None)
        if table is None or shape(bench.recording, table)[0] < length:
            continue
        for node, numbers in _sequences(bench, lookup, length):
            if len(set(numbers)) == 1 and not bench.recording.values[node].is_floating_point():
                return node
    return None


def _sequences(bench: Bench, node: Node, length: int) -> list[tuple[Node, list[float]]]:
    """Return the ancestors of `node` that hold one number for each position, in order."""
    found: list[tuple[Node, list[float]]] = []
    order = bench.dependence.order.__getitem__
    for one in sorted(bench.dependence.ancestors([node]), key=order):
        value = bench.recording.values.get(one)
        if not isinstance(value, Tensor) or value.dtype == torch.bool or not value.dim():
            continue
        flat = value.reshape(-1, value.shape[-1]) if value.shape[-1] == length else value[..., 0]
        flat = flat.reshape(-1, length) if flat.numel() % length == 0 and flat.numel() else flat
        fits = flat.dim() == 2 and flat.shape[1] == length and value.numel() == flat.numel()
        if fits and bool((flat == flat[:1]).all()):
            found.append((one, [float(v) for v in flat[0]]))
    return found
