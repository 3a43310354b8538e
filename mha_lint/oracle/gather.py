"""Where each element of one tensor stands in another, found from the values alone.

A head split or merge moves numbers and changes none (a gain aside), and numbers of random data
occur once. So the map can be read off, whatever views and permutes made it, and what it does to
samples, positions and channels can be said exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.oracle.closeness import RELATIVE, difference, magnitude


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """``value`` = ``gain`` * ``source.flatten()[index]``; index has the shape of the value."""

    index: Tensor
    gain: float
    difference: float


def gain_between(value: Tensor, candidate: Tensor) -> float | None:
    """Return c with value = c * candidate, solved at the largest element, verified on the rest.

    None where no c fits (or where the candidate is all zero).
    """
    if value.shape != candidate.shape or not candidate.numel():
        return None
    at = int(candidate.abs().argmax())
    denominator = candidate.flatten()[at].item()
    if not math.isfinite(denominator) or denominator == 0:
        return None
    gain: float = value.flatten()[at].item() / denominator
    if not math.isfinite(gain) or gain == 0:
        return None
    if abs(gain - 1) < RELATIVE / 100:
        gain = 1.0
    left = difference(value, candidate * gain)
    return gain if left <= RELATIVE * magnitude(value) else None


def gather_from(value: Tensor, source: Tensor, gains: tuple[float, ...] = ()) -> Gathered | None:
    """Return where every element of `value` stands in `source`, or None.

    The gain is tried among 1, the ratio of the largest elements (either sign), and `gains`. None
    also where the source holds some number twice, since then the map cannot be read off.
    """
    flat = source.flatten()
    if flat.numel() < 2 or not value.numel() or not bool(torch.isfinite(value).all()):
        return None
    ordered, order = flat.sort()
    step = RELATIVE * magnitude(source)
    if bool(((ordered[1:] - ordered[:-1]) <= step / 1e5).any()):
        return None
    ratio = magnitude(value) / magnitude(source)
    for gain in (1.0, ratio, -ratio, *gains):
        if not math.isfinite(gain) or gain == 0:
            continue
        wanted = (value / gain).contiguous()
        right = torch.searchsorted(ordered, wanted).clamp(1, flat.numel() - 1)
        left = right - 1
        nearer = torch.where(
            (wanted - ordered[left]).abs() <= (ordered[right] - wanted).abs(), left, right
        )
        gap = (ordered[nearer] - wanted).abs().amax().item()
        if gap <= step:
            return Gathered(order[nearer], gain, gap * abs(gain))
    return None


def constant_along(labels: Tensor, axes: tuple[int, ...]) -> bool:
    """Return whether `labels` do not change along `axes`."""
    first = labels
    for axis in axes:
        first = first.narrow(axis, 0, 1)
    return bool((labels == first).all())
