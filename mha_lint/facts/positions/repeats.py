"""Positions that share their place with another one of the same sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Repeats:
    """``fault`` as in `mha_lint.model.position_facts.RepeatedPositions`; two rows that are alike."""

    fault: str
    first: int
    second: int
    count: int


def repeats_of(rows: Tensor, *, first_may_repeat: bool = True) -> Repeats | None:
    """Return how the `rows` (R, F), one per position in order, repeat, None where that is meant.

    Blocks of one size (the tokens of one frame) and whole periods (frames that share a grid) are
    meant, and so is, with `first_may_repeat`, a first token that is not rotated, as the second is not.
    """
    length = rows.shape[0]
    codes = _codes(rows)
    distinct = len(set(codes))
    if length < 3 or distinct == length:
        return None
    seen: dict[int, int] = {}
    pairs = [(seen.setdefault(code, at), at) for at, code in enumerate(codes)]
    again = [(one, two) for one, two in pairs if one != two]
    count = len(again)
    if distinct == 1:
        return Repeats("same", 0, 1, count)
    if first_may_repeat and codes[0] == codes[1] and count == 1:
        return None
    if _in_blocks(codes) or _in_periods(codes):
        return None
    last = _tail(codes)
    if last > 1 and distinct == length - last + 1 and distinct > 2:
        return Repeats("clamped", length - last, length - last + 1, count)
    period = _period(codes)
    if period is not None and distinct > 2:
        return Repeats("wrapped", 0, period, count)
    stepwise = all(two == one + 1 for one, two in again)
    if stepwise and count * 4 <= length:
        return Repeats("repeated", *again[0], count)
    return None


def _codes(rows: Tensor) -> list[int]:
    _, codes = torch.unique(rows.round(decimals=9), dim=0, return_inverse=True)
    return [int(c) for c in codes]


def _runs(codes: list[int]) -> list[int]:
    sizes: list[int] = []
    for at, code in enumerate(codes):
        if at and code == codes[at - 1]:
            sizes[-1] += 1
        else:
            sizes.append(1)
    return sizes


def _in_blocks(codes: list[int]) -> bool:
    """Return whether neighbours share, in blocks of one size (the last one may be cut)."""
    sizes = _runs(codes)
    return sizes[0] > 1 and len(set(sizes[:-1])) == 1 and sizes[-1] <= sizes[0] and len(sizes) > 1


def _in_periods(codes: list[int]) -> bool:
    period = _period(codes)
    return period is not None and len(codes) % period == 0


def _period(codes: list[int]) -> int | None:
    """Return after how many positions the codes begin anew, None if they do not."""
    if codes.count(codes[0]) < 2:
        return None
    period = codes.index(codes[0], 1)
    fits = all(code == codes[at % period] for at, code in enumerate(codes))
    return period if fits and period > 1 else None


def _tail(codes: list[int]) -> int:
    return _runs(codes)[-1]
