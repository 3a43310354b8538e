"""Maps that mix the channels of one vector in pairs, as rotations by position do.

Nothing is recognised by its operations: every place where the ways of a tensor join again is run on
a few inputs, and is a map of pairs if each element it makes is a sum of at most two channels. How
much of which two is solved from four moments and verified on random data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.sites.dependence import is_number, is_tensor, operands
from mha_lint.sites.trace import Trace, trace

EXACT = 1e-9
"""Relative: what a linear map may differ by when its input is doubled."""
NEAR = 1e-6
"""Relative: what a map of pairs may differ by from its prediction; tiny angles count as none."""
SMALLEST = 1e-11
"""Below this share a determinant counts as zero: the element reads one channel only."""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """The map from `entry` to `exit`; tensors have the shape of `exit`.

    ``first`` and ``second``: the places along `axis` of `entry` that an element reads, the smaller
    one first; -1 as second where it reads one only, -1 as both where it reads none. ``a``, ``b``:
    how much of each. ``line``: the element of `entry` that it reads, `axis` left out. ``sides``:
    what else goes into the map.
    """

    entry: Node
    exit: Node
    axis: int
    first: Tensor
    second: Tensor
    a: Tensor
    b: Tensor
    line: Tensor
    sides: tuple[Node, ...]


def turns_between(
    bench: Bench, start: Node, end: Node, given: dict[Node, Tensor] | None = None
) -> list[Turn]:
    """Return the maps of pairs between `start` and `end`, the outermost of those that are nested.

    `given`: values of inputs that tables are made from.
    """
    found: list[Turn] = []
    inside: set[Node] = set()
    path = bench.dependence.between(start, end)
    for node in reversed(_joins(bench, start, path)):
        if node in inside:
            continue
        turn = _measured(bench, start, node, given or {})
        if turn is not None:
            found.append(turn)
            inside |= set(bench.dependence.between(turn.entry, turn.exit))
    return _composed(bench, found[::-1], given or {})


def _composed(bench: Bench, turns: list[Turn], given: dict[Node, Tensor]) -> list[Turn]:
    """Join maps that act one after the other on the same vectors."""
    found: list[Turn] = []
    for turn in turns:
        before = found[-1] if found else None
        if before is not None and before.exit in bench.dependence.ancestors([turn.entry]):
            both = _measured(bench, before.entry, turn.exit, given, entry=before.entry)
            if both is not None:
                found[-1] = both
                continue
        found.append(turn)
    return found


def tables_of(bench: Bench, start: Node, end: Node) -> set[Node]:
    """Return the tensors that join the way from `start` to `end` and do not come from `start`."""
    path = bench.dependence.between(start, end)
    known = {start, *path}
    return {
        n for one in path for n in operands(one) if n not in known and is_tensor(bench.recording, n)
    }


def _joins(bench: Bench, start: Node, path: list[Node]) -> list[Node]:
    """Return where several ways from `start` meet, or complex numbers become real ones again."""
    on_path = {start, *path}
    found = []
    for node in path:
        if not is_number(bench.recording, node):
            continue
        ways = [n for n in operands(node) if n in on_path]
        lone = [n for n in ways if is_tensor(bench.recording, n)]
        complex_before = any(bench.recording.values[n].is_complex() for n in lone)
        sides = [n for n in operands(node) if n not in on_path and is_number(bench.recording, n)]
        contracted = bool(sides) and bench.finder.sources.contraction(node) is not None
        if len(ways) > 1 or complex_before or contracted:
            found.append(node)
    return found


def _measured(
    bench: Bench,
    start: Node,
    exit_: Node,
    given: dict[Node, Tensor],
    *,
    entry: Node | None = None,
) -> Turn | None:
    entry = entry or _entry(bench, start, exit_)
    if entry is None:
        return None
    replay = bench.replay
    at = replay.base(entry)
    generator = torch.Generator().manual_seed(5)
    drawn = torch.randn(at.shape, generator=generator, dtype=torch.float64)

    def run(value: Tensor) -> Tensor:
        (out,) = replay.run([exit_], {**given, entry: value})
        return torch.as_tensor(out)

    once, nothing = run(drawn), run(torch.zeros_like(at))
    if not once.numel() or once.shape != replay.base(exit_).shape:
        return None
    size = once.abs().max().clamp(min=1e-300)
    if not bool(torch.isfinite(once).all()) or bool((nothing.abs() > EXACT * size).any()):
        return None
    if bool((run(2 * drawn) - 2 * once).abs().max() > EXACT * size):
        return None
    traced = trace(replay, entry, exit_)
    order = bench.dependence.order.__getitem__
    sides = tuple(sorted(tables_of(bench, entry, exit_), key=order))
    if traced.all_clean and sides:
        return _still(entry, exit_, traced, sides)
    mixed = [i for i, clean in enumerate(traced.clean) if not clean]
    if len(mixed) != 1 or not bool(traced.responds.any()):
        return None
    (axis,) = mixed
    count = at.shape[axis]
    ramp = (torch.arange(count, dtype=torch.float64) - (count - 1) / 2) / (count / 2)
    ramp = ramp.view([count if a == axis else 1 for a in range(at.dim())])
    moments = [run((ramp**power).expand(at.shape)) for power in range(4)]
    solved = _solved(moments, count)
    if solved is None:
        return None
    first, second, a, b = solved
    line = torch.zeros_like(first)
    for other, index in enumerate(traced.index):
        if other != axis:
            line = line * at.shape[other] + index.clamp(min=0)
    predicted = _predicted(drawn.movedim(axis, -1).reshape(-1, count), line, first, second, a, b)
    if bool((predicted - once).abs().max() > NEAR * size):
        return None
    return Turn(entry, exit_, axis, first, second, a, b, line, sides)


def _still(entry: Node, exit_: Node, traced: Trace, sides: tuple[Node, ...]) -> Turn | None:
    """Return the map where each element reads one channel only, as under angles of zero."""
    if traced.gain is None or len(traced.shape) < 2:
        return None
    axis = len(traced.shape) - 1
    line = torch.zeros_like(traced.index[0])
    for other, index in enumerate(traced.index[:-1]):
        line = line * traced.shape[other] + index.clamp(min=0)
    none = torch.full_like(line, -1)
    first = torch.where(traced.responds, traced.index[axis], none)
    return Turn(
        entry, exit_, axis, first, none, traced.gain, torch.zeros_like(traced.gain), line, sides
    )


def _entry(bench: Bench, start: Node, exit_: Node) -> Node | None:
    """Return the last tensor that all ways from `start` to `exit_` pass before."""
    passed = [
        n for n in bench.dependence.bottlenecks(start, exit_)
        if n is not exit_ and is_number(bench.recording, n)
    ]  # fmt: skip
    found = passed[-1] if passed else start
    return found if is_number(bench.recording, found) else None


def _solved(moments: list[Tensor], count: int) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Return places and amounts of the two channels behind each element, from four moments."""
    m0, m1, m2, m3 = moments
    size = torch.stack(moments).abs().amax(0)
    none = size < SMALLEST
    scale = torch.where(none, torch.ones_like(size), size)
    m0, m1, m2, m3 = (m / scale for m in (m0, m1, m2, m3))
    determinant = m0 * m2 - m1 * m1
    single = ~none & (determinant.abs() < SMALLEST)
    double = ~none & ~single
    safe = torch.where(double, determinant, torch.ones_like(determinant))
    p = (m0 * m3 - m1 * m2) / safe
    q = (m1 * m3 - m2 * m2) / safe
    root = (p * p / 4 - q).clamp(min=0).sqrt()
    alone = m1 / torch.where(single, m0, torch.ones_like(m0))
    low = _place(torch.where(single, alone, p / 2 - root), count)
    high = _place(p / 2 + root, count)
    valid = (low >= 0) & (low < count) & (single | ((high > low) & (high < count)))
    if not bool((valid | none).all()):
        return None
    x, y = ((i.double() - (count - 1) / 2) / (count / 2) for i in (low, high))
    gap = torch.where(double, y - x, torch.ones_like(x))
    b = torch.where(double, (m1 - x * m0) / gap, torch.zeros_like(m0))
    a = torch.where(double, m0 - b, m0)
    nothing = torch.full_like(low, -1)
    return (
        torch.where(none, nothing, low),
        torch.where(double, high, nothing),
        torch.where(none, torch.zeros_like(a), a * scale),
        torch.where(none, torch.zeros_like(b), b * scale),
    )


def _place(ramp: Tensor, count: int) -> Tensor:
    place = ramp * (count / 2) + (count - 1) / 2
    return torch.nan_to_num(place, nan=-1.0, posinf=-1.0, neginf=-1.0).round().long()


def _predicted(
    lines: Tensor, line: Tensor, first: Tensor, second: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    one, two = (lines[line, i.clamp(min=0)] for i in (first, second))
    return a * one + b * two
