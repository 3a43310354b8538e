"""How far two tensors are apart, and when that is nothing but rounding.

Everything here is float64, so a stage that is reproduced agrees to a few units in the last place
(about 1e-15 of the largest element); a wrong variant at random data is off by about the size of
the elements. One part in 10**9 of the largest element lies far from both.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

RELATIVE = 1e-9
"""Largest difference, as a part of the largest element, that counts as reproduced."""


def magnitude(tensor: Tensor) -> float:
    """Return the largest finite absolute value of `tensor` (0.0 when there is none)."""
    if not tensor.numel():
        return 0.0
    largest = tensor.abs().amax().item()
    if math.isfinite(largest):
        return largest
    finite = tensor[torch.isfinite(tensor)]
    return finite.abs().amax().item() if finite.numel() else 0.0


def difference(found: Tensor, candidate: Tensor, *, where: Tensor | None = None) -> float:
    """Return the largest absolute difference of two tensors of one shape, else infinity.

    Infinities of one sign and NaN on both sides are equal; anything not finite on one side alone
    is infinitely far. ``where``: (broadcastable) bool, the elements that are compared; when it
    leaves none, nothing was shown and the result is infinity.
    """
    if found.shape != candidate.shape:
        return math.inf
    gap = (found - candidate).abs()
    if where is not None:
        where = where.expand_as(gap)
        if not bool(where.any()):
            return math.inf
        gap = torch.where(where, gap, 0.0)
    if not gap.numel():
        return 0.0
    largest = gap.amax().item()
    if math.isfinite(largest):
        return largest
    same = (found == candidate) | (found.isnan() & candidate.isnan())
    largest = torch.where(same, 0.0, gap).amax().item()
    return math.inf if math.isnan(largest) else largest


def one_digit(error: float) -> str:
    """Return `error` with one digit, so that the text does not change with the rounding."""
    if error == 0:
        return "0"
    return f"{error:.0e}" if error < 0.01 or error >= 100 else f"{error:.1g}"
