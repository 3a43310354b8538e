"""Where each element of a tensor came from, measured by replay and not by recognising operations.

A small perturbation whose size is the index along one axis of the source arrives at every element
of the target; divided by what a perturbation of equal size everywhere does there, it gives the
index along that axis that the element came from. This is exact for layout changes and for any
elementwise factor between; where elements of one vector are mixed (a rotation, a norm, a map over
heads) the axes along which nothing is mixed still come out clean.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay

STEP = 1e-6
"""Small enough for the curvature of soft-capping and norms, large against float64 rounding."""
CLEAN = 0.05
"""How far a measured index may lie from a whole number: curvature gives below 0.01."""
FLAT = 1e-7
"""A response below this share of the largest one counts as none (hidden by a mask)."""
FAINT = 1e-4
"""Below this share of the largest response it is looked at whether it is a slope at all."""
WEAK = 1e-3
"""Below this share of the largest response an index that is no whole number proves nothing."""
HIDDEN = 1e6
"""Beyond this a value is a mask's fill, and rounding would drown the perturbation."""
MOSTLY = 0.9
"""Share of elements with an origin from which on an axis can be compared on two sets of data."""
PICKED = 0.05
"""Share of elements that must come from elsewhere on other data: fewer may be whole by chance."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Origin of every element of a target tensor.

    ``index[a]`` has the target's shape and holds the index along axis ``a`` of the source, -1
    where the source has no influence; ``clean[a]`` tells whether all of these are whole numbers
    within range. ``responds``: elements that depend on the source. ``gain``: |d target / d source|
    of each element, or None where elements are mixed.
    """

    shape: tuple[int, ...]
    index: tuple[Tensor, ...]
    clean: tuple[bool, ...]
    responds: Tensor
    gain: Tensor | None

    @property
    def all_clean(self) -> bool:
        """Return whether every responding element comes from exactly one source element."""
        return all(self.clean)

    def flat(self) -> Tensor:
        """Return the flat source index of each element, -1 where unknown (needs `all_clean`)."""
        flat = (
            torch.zeros_like(self.index[0])
            if self.index
            else torch.zeros_like(self.responds).long()
        )
        for size, index in zip(self.shape, self.index, strict=True):
            flat = flat * size + index.clamp(min=0)
        return torch.where(self.responds, flat, torch.full_like(flat, -1))


_KNOWN: WeakKeyDictionary[Replay, dict[tuple[Node, Node], Trace]] = WeakKeyDictionary()
"""Traces of a replay are asked for by several facts, and never change."""


def trace(replay: Replay, source: Node, target: Node) -> Trace:
    """Return where the elements of `target` come from in `source`."""
    known = _KNOWN.setdefault(replay, {})
    if (source, target) not in known:
        known[source, target] = _measured(replay, source, target)
    return known[source, target]


def _measured(replay: Replay, source: Node, target: Node) -> Trace:
    at = replay.base(source)
    if source is target:
        return _identity(at)
    there = replay.base(target)
    found = _trace_at(replay, source, target, at, there)
    silent = ~found.responds & torch.isfinite(there) & (there.abs() < HIDDEN)
    if not bool(silent.any()) or not bool(found.responds.any()):
        return found
    # A ReLU is flat on one side of zero: look from both sides.
    for other in (at.abs() + 0.1, -at.abs() - 0.1):
        elsewhere = _moved(replay, target, there, {source: other})
        if elsewhere is there:
            continue
        more = _trace_at(replay, source, target, other, elsewhere)
        if bool((more.responds & ~found.responds).any()):
            found = _joined(found, more)
    return found


def depends_on_values(replay: Replay, source: Node, target: Node) -> bool:
    """Return whether elements come from other places on other data, as those of a max-pool do."""
    found = trace(replay, source, target)
    at = replay.base(source)
    other = torch.flip(at, tuple(range(at.dim())))
    there = replay.base(target)
    elsewhere = _moved(replay, target, there, {source: other})
    if elsewhere is there:
        return True
    again = _trace_at(replay, source, target, other, elsewhere)
    both = found.responds & again.responds
    for axis, (a, b) in enumerate(zip(found.index, again.index, strict=True)):
        if found.clean[axis] and again.clean[axis]:
            if bool(((a != b) & both).any()):
                return True
            continue
        # Two candidates that lie close together change places while they are moved, and a few
        # elements then have no origin.
        told = both & (a >= 0) & (b >= 0)
        known, moved = int(told.sum()), int(((a != b) & told).sum())
        if known >= MOSTLY * max(1, int(both.sum())) and moved > PICKED * known:
            return True
    return False


def _joined(one: Trace, other: Trace) -> Trace:
    new = ~one.responds
    index = tuple(torch.where(new, b, a) for a, b in zip(one.index, other.index, strict=True))
    clean = tuple(a and b for a, b in zip(one.clean, other.clean, strict=True))
    gain = None
    if one.gain is not None and other.gain is not None:
        gain = torch.where(new, other.gain, one.gain)
    return Trace(one.shape, index, clean, one.responds | other.responds, gain)


def _trace_at(replay: Replay, source: Node, target: Node, at: Tensor, there: Tensor) -> Trace:
    weight = _weights(at)
    response = _respond(replay, source, target, at, there, weight)
    if not at.numel() or not response.numel():
        return _silent(at, response)
    # An element that the push hides, or shows, was picked by the data: that is no slope.
    finite = torch.isfinite(response) & (there.abs() < HIDDEN) & (response.abs() < HIDDEN / STEP)
    size = response.abs()  # real also of what is complex
    size = size.where(finite, torch.zeros_like(size))
    responds = finite & (size > FLAT * size.max().clamp(min=1e-300))
    faint = responds & (size < FAINT * size.max())
    if bool(faint.any()):
        # At the bottom of a square there is no slope, only curvature: twice the push, four times that.
        twice = _respond(replay, source, target, at, there, 2 * weight)
        responds = responds & ~(faint & ((twice - 2 * response).abs() > 0.5 * size))
    safe = response.where(responds, torch.ones_like(response))
    indices: list[Tensor] = []
    clean: list[bool] = []
    for axis, n in enumerate(at.shape):
        if n == 1:
            indices.append(torch.where(responds, 0, -1))
            clean.append(True)
            continue
        ramp = torch.arange(n, dtype=at.dtype, device=at.device) / (n - 1)
        ramp = ramp.view([n if a == axis else 1 for a in range(at.dim())])
        moved = _respond(replay, source, target, at, there, weight * ramp)
        found = moved / safe * (n - 1)
        if found.is_complex():
            found = found.real.where(
                found.imag.abs() < CLEAN, torch.full_like(found.real, math.nan)
            )
        whole = found.round()
        ok = ((found - whole).abs() < CLEAN) & (whole >= 0) & (whole < n)
        # Where the target hardly moves, curvature outweighs the slope: nothing is known there.
        weak = size < WEAK * size.max()
        clean.append(bool((ok | ~responds | weak).all()) and bool(responds.any()))
        told = responds & ok
        if bool((responds & ~ok & weak).any()):
            told &= ~weak  # among weak ones that are no whole numbers some are so by chance
        indices.append(torch.where(told, whole, torch.full_like(whole, -1)).long())
    result = Trace(tuple(at.shape), tuple(indices), tuple(clean), responds, None)
    if not (result.all_clean and responds.any()) or response.is_complex():
        return result
    flat = result.flat().clamp(min=0)
    gain = response / weight.expand_as(at).reshape(-1)[flat]
    gain = gain.where(responds, torch.zeros_like(gain))
    return Trace(result.shape, result.index, result.clean, responds, gain)


def _silent(at: Tensor, response: Tensor) -> Trace:
    """Return the trace of a source or target without elements: nothing comes from anywhere."""
    index = torch.full(response.shape, -1, dtype=torch.long)
    nothing = torch.zeros(response.shape, dtype=torch.bool)
    return Trace(tuple(at.shape), (index,) * at.dim(), (False,) * at.dim(), nothing, None)


def _identity(at: Tensor) -> Trace:
    grids = torch.meshgrid(*(torch.arange(n) for n in at.shape), indexing="ij") if at.dim() else ()
    yes = torch.ones(at.shape, dtype=torch.bool)
    return Trace(
        tuple(at.shape),
        tuple(grids),
        (True,) * at.dim(),
        yes,
        torch.ones(at.shape, dtype=torch.float64),
    )


def _weights(at: Tensor) -> Tensor:
    """Return fixed positive weights: a constant shift would vanish in a LayerNorm."""
    generator = torch.Generator().manual_seed(7)
    return (torch.rand(at.shape, generator=generator, dtype=torch.float64) + 0.5).to(at.device)


def _respond(
    replay: Replay, source: Node, target: Node, at: Tensor, there: Tensor, by: Tensor
) -> Tensor:
    moved = _moved(replay, target, there, {source: at + STEP * by})
    return torch.as_tensor((moved - there) / STEP)


def _moved(replay: Replay, target: Node, there: Tensor, substitute: dict[Node, Tensor]) -> Tensor:
    """Return `target` on moved data, or `there` (no answer) where the code cannot be run on it.

    Code that sorts, counts or picks may index out of range, or return another number of elements.
    """
    try:
        (moved,) = replay.run([target], substitute)
    except (RuntimeError, IndexError):
        return there
    return torch.as_tensor(moved) if moved.shape == there.shape else there


_Reach: TypeAlias = Callable[[Replay, Node, Node, int], Tensor]
_REACHED: WeakKeyDictionary[Replay, dict[tuple[str, Node, Node, int], Tensor]] = WeakKeyDictionary()


def _kept(measure: _Reach) -> _Reach:
    """Measure each pair of nodes of a replay once: several facts ask for it, and it never changes."""

    @functools.wraps(measure)
    def once(replay: Replay, source: Node, target: Node, axis: int) -> Tensor:
        known = _REACHED.setdefault(replay, {})
        key = (measure.__name__, source, target, axis)
        if key not in known:
            known[key] = measure(replay, source, target, axis)
        return known[key]

    return once


@_kept
def influence_codes(replay: Replay, source: Node, target: Node, axis: int) -> Tensor:
    """Tell which slices along `axis` of `source` reach each element of `target`, as bits.

    For every bit of the slice number, all slices with that bit set, then all with it clear, are
    perturbed together. Returns an int64 tensor of the target's shape: bit 2k tells that some slice
    with bit k set matters, bit 2k+1 that some slice with it clear does. Equal sets have equal codes;
    a vector's set is the bitwise or of its elements'.
    """
    at = replay.base(source)
    there = replay.base(target)
    n = at.shape[axis]
    numbers = torch.arange(n, device=at.device)
    weight = _weights(at)
    code = torch.zeros(there.shape, dtype=torch.int64, device=there.device)
    for bit in range(max(1, (n - 1).bit_length())):
        for value in (1, 0):
            chosen = ((numbers >> bit) & 1) == value
            if not bool(chosen.any()):
                continue
            chosen = chosen.to(at.dtype).view([n if a == axis else 1 for a in range(at.dim())])
            moved = _moved(replay, target, there, {source: at + 1e-3 * weight * chosen})
            changed = (moved - there).abs() > 1e-12 * there.abs().clamp(min=1.0)
            changed &= torch.isfinite(moved)
            code |= changed.long() << (2 * bit + (1 - value))
    return code


@_kept
def dominant_index(replay: Replay, source: Node, target: Node, axis: int) -> Tensor:
    """Return for each element of `target` the slice along `axis` of `source` that moves it most.

    For axes that are mixed on the way: a norm over positions, pooled keys, a local convolution.
    -1 where no slice has an influence.
    """
    at = replay.base(source)
    there = replay.base(target)
    weight = _weights(at)
    best = torch.zeros_like(there)
    index = torch.full(there.shape, -1, dtype=torch.long, device=there.device)
    for n in range(at.shape[axis]):
        moved_in = at.clone()
        # The same push for every slice: with another one each, equal shares would look unequal.
        moved_in.select(axis, n).add_(1e-4 * weight.select(axis, 0))
        moved = _moved(replay, target, there, {source: moved_in})
        change = torch.nan_to_num((moved - there).abs())
        # A tie (pooling) goes to the first slice: rounding must not decide.
        better = change > best * (1 + 1e-6) + 1e-14
        index = torch.where(better, n, index)
        best = torch.maximum(best, change)
    return index


def distinct(values: Tensor) -> list[int]:
    """Return the different whole numbers in `values`, in order."""
    return sorted(set(values.flatten().tolist()))


def mostly_varies_along(values: Tensor, axis: int) -> bool:
    """Return whether most neighbours along `axis` differ.

    For the result of `dominant_index`: a norm lets another slice win here and there.
    """
    moved = values.movedim(axis, 0)
    one, other = moved[:-1], moved[1:]
    known = (one >= 0) & (other >= 0)
    count = int(known.sum())
    return count > 0 and int(((one != other) & known).sum()) > count // 2


def varies_along(values: Tensor, axis: int) -> bool:
    """Return whether `values` (-1: unknown) changes along `axis` anywhere."""
    count = values.shape[axis]
    if count < 2 or not values.numel():
        return False
    first, second = values.select(axis, 0), values.select(axis, 1)
    if bool(((first != second) & (first >= 0) & (second >= 0)).any()):
        return True
    one, other = values.narrow(axis, 0, count - 1), values.narrow(axis, 1, count - 1)
    if not bool((one != other).any()):
        return False
    known = values >= 0
    if bool(known.all()):
        return True
    big = torch.iinfo(values.dtype).max
    low = values.where(known, torch.full_like(values, big)).amin(axis)
    high = values.amax(axis)
    return bool(((high > low) & (high >= 0)).any())
