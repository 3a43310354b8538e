"""Operands: from a projection's output (B, T, C) to the groups of rows that are contracted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations

import torch
from torch import Tensor

from mha_lint.oracle.closeness import RELATIVE, difference, magnitude
from mha_lint.oracle.data import Operand
from mha_lint.oracle.fit import Departure, Fit, unique
from mha_lint.oracle.gather import constant_along, gain_between, gather_from
from mha_lint.oracle.layouts import coordinates, row_labels
from mha_lint.oracle.view import SiteView

WORDS = {"q": "queries", "k": "keys", "v": "values"}


def fits(view: SiteView, level: int, thorough: bool = False, *, letter: str) -> Iterator[Fit]:
    """Yield how an operand ("q", "k", "v") comes from its source, up to `level` departures."""
    operand = view.operand(letter)
    source = operand.source
    if source is None or operand.opaque is not None:
        return
    right = view.right(letter)
    mispaired = None if right is None else _mispairing(view, letter)
    if right is not None and mispaired is not None and level >= 1:
        take = partial(_take, index=right[0].index)
        departure = Departure(f"split:{letter}", mispaired, f"{WORDS[letter]} {mispaired}")
        yield Fit((departure,), right[0].difference, take, scale=right[0].gain)
    if right is not None and mispaired is None:
        gathered, _ = right
        take = partial(_take, index=gathered.index)
        yield Fit((), gathered.difference, take, scale=gathered.gain)
        if not thorough:
            return
    if level >= 1 and mispaired is None:
        yield from unique(_wrong(view, operand, source, letter, thorough))


def _mispairing(view: SiteView, letter: str) -> str | None:
    """Return how keys or values that are split right meet the wrong queries, if they do."""
    queries, own = view.right("q"), view.right(letter)
    one, other = view.data.q.source, view.operand(letter).source
    if letter == "q" or queries is None or own is None or one is None or other is None:
        return None
    if one.shape[0] != other.shape[0] or len(queries[1].head) != len(own[1].head):
        return None
    if not torch.equal(queries[1].sample[:, 0], own[1].sample[:, 0]):
        return "paired with queries of other samples"
    pairs = torch.stack((queries[1].head, own[1].head))
    if int(torch.unique(pairs, dim=1).shape[1]) > int(queries[1].head.max()) + 1:
        return "paired with other heads from group to group"
    return None


def _take(source: Tensor, *, index: Tensor) -> Tensor:
    return source.flatten()[index]


def _wrong(
    view: SiteView, operand: Operand, source: Tensor, letter: str, thorough: bool
) -> Iterator[Fit]:
    bound = RELATIVE * magnitude(operand.value)
    numbers = torch.arange(source.numel(), device=source.device).view(source.shape)
    for name, index in _mistaken_layouts(numbers, operand.value.shape[-1]):
        flat = _repeated(index, operand.value.shape)
        if flat is None:
            continue
        gain = gain_between(operand.value, source.flatten()[flat])
        if gain is None or (not thorough and row_labels(flat, source.shape) is not None):
            continue
        left = difference(operand.value, source.flatten()[flat] * gain)
        departure = Departure(f"split:{letter}", name, f"{WORDS[letter]} split by {name}")
        yield Fit((departure,), left, partial(_take, index=flat), scale=gain)
        if not thorough:
            return
    found = gather_from(operand.value, source, tuple(view.data.named_scales.values()))
    if found is not None and found.difference <= bound:
        name = _mixture(found.index, source.shape)
        departure = Departure(f"split:{letter}", name, f"{WORDS[letter]} split with {name}")
        yield Fit(
            (departure,), found.difference, partial(_take, index=found.index), scale=found.gain
        )


def _mistaken_layouts(numbers: Tensor, width: int) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, (G, R, D)) of wrong splits of (B, T, C), here of its element numbers."""
    b, t, c = numbers.shape
    if c % width:
        return
    h = c // width
    yield "a view without transpose", numbers.reshape(b * h, t, width)
    yield "heads taken as rows", numbers.reshape(b * t, h, width)
    time_first = numbers.transpose(0, 1).contiguous()
    rows_are_samples = numbers.reshape(b, t, h, width).permute(1, 2, 0, 3)
    yield "samples taken as rows", rows_are_samples.reshape(t * h, b, width)
    yield "samples taken as rows", rows_are_samples.transpose(0, 1).reshape(t * h, b, width)
    yield "a folded view of time-first data", time_first.reshape(b * h, t, width)
    yield "a view of channels before positions", numbers.transpose(1, 2).reshape(b * h, t, width)
    yield (
        "a view as (B, h, d, T)",
        numbers.reshape(b, h, width, t).transpose(2, 3).reshape(b * h, t, width),
    )
    axes = numbers.reshape(b, t, h, width)
    named = ((0, 1, 2, 3), (0, 2, 3, 1))  # a plain view, and channels before positions
    for order in permutations(range(4)):
        if order in named:
            continue
        shape = axes.permute(order)
        letters = ", ".join("BThd"[axis] for axis in order)
        yield f"the axes in the order ({letters})", shape.reshape(b * h, t, width)


def _repeated(index: Tensor, shape: torch.Size) -> Tensor | None:
    """Return (G', R, D) with its groups repeated to `shape` (grouped keys and values), or None."""
    if index.shape[1:] != shape[1:] or not len(index) or shape[0] % len(index):
        return None
    return index.repeat_interleave(shape[0] // len(index), dim=0)


def _mixture(index: Tensor, shape: torch.Size) -> str:
    """Say what varies along rows and columns of an operand that is not split right."""
    labels = dict(zip(("samples", "positions", "channels"), coordinates(index, shape), strict=True))
    rows = [name for name, label in labels.items() if not constant_along(label, (1,))]
    columns = [name for name, label in labels.items() if not constant_along(label, (2,))]
    if rows == ["channels"] and columns == ["channels"]:
        return "heads taken as rows"
    if rows == ["samples"] and columns == ["channels"]:
        return "samples taken as rows"
    return f"{' and '.join(rows) or 'nothing'} along rows and {' and '.join(columns)} in columns"
