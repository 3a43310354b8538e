"""Linear biases: what each head adds for each step of distance, and whether that is as defined.

Press, Smith and Lewis 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input
Length Extrapolation" (ALiBi): head i of h adds -2^(-8 i / h) for each step of distance; where h is
no power of two, the slopes of the next lower one and every second of the next higher one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

CLOSE = 1e-4
"""Relative: slopes in float32 times a few hundred positions carry no more."""
HALF = 5e-3
"""Relative: slopes that were kept in half precision."""
SEEN = 1e-9
ROWS = 12
"""Rows of a score matrix that are looked at, spread evenly."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The linear bias of one site.

    ``before``: per head, by how much the bias rises from one key to the next up to the query's own
    place; ``after``: behind it, None where nothing behind it is visible. ``own``: the key of the
    first query (0 without a cache). ``steady``: the same in all rows; else ``by_row`` holds the
    slopes of one head's rows.
    """

    before: tuple[float, ...]
    after: tuple[float, ...] | None
    own: int
    steady: bool = True
    by_row: tuple[float, ...] = ()


def lines_of(level: Tensor, seen: Tensor, owns: tuple[int, ...]) -> Lines | None:
    """Return the lines of the bias `level` (H, T_q, T_k) where `seen`, None where it has none.

    `owns`: places that the first query may have among the keys; the first that fits is taken.
    """
    rows = spread(level.shape[1], ROWS)
    level, seen = level[:, rows], seen[:, rows]
    steps = level[..., 1:] - level[..., :-1]
    usable = seen[..., 1:] & seen[..., :-1]
    if not bool(usable.any()) or not bool((steps.abs()[usable] > SEEN).any()):
        return None
    uneven: Lines | None = None
    for own in owns:
        place = rows + own
        keys = torch.arange(steps.shape[-1])
        left = usable & (keys + 1 <= place[:, None])
        right = usable & (keys >= place[:, None])
        before, after = _by_row(steps, left), _by_row(steps, right)
        longest = max(int(side.sum(-1).max()) for side in (left, right))
        if before is None or after is None or longest < 2 or bool(before.isnan().all()):
            continue
        first, second = _by_head(before), _by_head(after)
        if first is not None and second is not None:
            shown = bool((~after.isnan()).any())
            return Lines(_listed(first), _listed(second) if shown else None, own)
        if uneven is None and bool((before.abs() > SEEN).any()):
            known = ~before[0].isnan()
            uneven = Lines(
                _listed(before.nan_to_num().amax(1)), None, own, False, _listed(before[0][known])
            )
    return uneven


def _by_row(steps: Tensor, where: Tensor) -> Tensor | None:
    """Return (H, R): the one step that a row takes, NaN where it has none; None if it has several."""
    low = torch.where(where, steps, math.inf).amin(-1)
    high = torch.where(where, steps, -math.inf).amax(-1)
    none = ~where.any(-1)
    low, high = low.masked_fill(none, math.nan), high.masked_fill(none, math.nan)
    size = torch.maximum(low.abs(), high.abs())
    if bool(((high - low) > CLOSE * size + SEEN).any()):
        return None
    return (low + high) / 2


def _by_head(rows: Tensor) -> Tensor | None:
    """Return (H,): the one slope of a head, 0 where it has none; None if its rows differ."""
    known = ~rows.isnan()
    low = torch.where(known, rows, math.inf).amin(-1)
    high = torch.where(known, rows, -math.inf).amax(-1)
    none = ~known.any(-1)
    low, high = low.masked_fill(none, 0.0), high.masked_fill(none, 0.0)
    size = torch.maximum(low.abs(), high.abs())
    return None if bool((high - low > CLOSE * size + SEEN).any()) else (low + high) / 2


def _listed(values: Tensor) -> tuple[float, ...]:
    return tuple(float(f"{v:.12g}") for v in values.tolist())


def spread(count: int, most: int) -> Tensor:
    """Return at most `most` of `count` places, spread evenly, with both ends."""
    few = min(count, most)
    return torch.tensor(sorted({round(i * (count - 1) / max(1, few - 1)) for i in range(few)}))


def published(heads: int) -> tuple[float, ...]:
    """Return the slopes of ALiBi for `heads` heads, as its authors' code makes them."""
    lower = 2 ** math.floor(math.log2(heads))
    found = [2 ** (-8 * i / lower) for i in range(1, lower + 1)]
    return (*found, *(2 ** (-8 * i / (2 * lower)) for i in range(1, 2 * (heads - lower), 2)))


def accepted(heads: int) -> tuple[tuple[float, ...], ...]:
    """Return all sequences of slopes that are in use for `heads` heads, the published one first.

    MPT takes those of the next higher power of two, every second one first. Some take 2^(-8 i / h)
    for any h. RetNet's decay is 1 - 2^(-5 - i), whose logarithm is added.
    """
    higher = 2 ** math.ceil(math.log2(heads))
    full = [2 ** (-8 * i / higher) for i in range(1, higher + 1)]
    half = heads // 2
    both = published(half) * 2 if half and heads % 2 == 0 else ()
    return (
        published(heads),
        tuple((full[1::2] + full[::2])[:heads]),
        tuple(2 ** (-8 * i / heads) for i in range(1, heads + 1)),
        tuple(-math.log(1 - 2.0 ** (-5 - i)) for i in range(heads)),
        *((both,) if both else ()),
    )


def matches(slopes: tuple[float, ...], due: tuple[float, ...], factor: float = 1.0) -> bool:
    """Return whether both hold the same numbers, `due` times `factor`, in whichever order."""
    return len(slopes) == len(due) and all(
        math.isclose(one, other * factor, rel_tol=HALF)
        for one, other in zip(sorted(slopes), sorted(due), strict=True)
    )


def is_geometric(slopes: tuple[float, ...]) -> bool:
    """Return whether each slope is the same part of the one before."""
    if len(slopes) < 3 or any(s <= 0 for s in slopes):
        return False
    ordered = sorted(slopes)
    ratio = ordered[1] / ordered[0]
    pairs = itertools.pairwise(ordered)
    return ratio > 1 and all(math.isclose(b / a, ratio, rel_tol=HALF) for a, b in pairs)
