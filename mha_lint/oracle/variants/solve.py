"""Constants that are solved from an entry or two and verified on all the rest."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mha_lint.oracle.closeness import RELATIVE, difference, magnitude
from mha_lint.oracle.view import SiteView

MOST_CAP = 1e6
"""Caps that are looked for, in units of the largest score: a larger one changes less than RELATIVE."""


def per_group_gain(found: Tensor, base: Tensor, where: Tensor) -> tuple[Tensor, float] | None:
    """Return c (G,) with found = c * base on `where`, one c for each group, and what is left.

    A group without any element to compare takes the gain of the others. None where no c fits.
    """
    usable = where & torch.isfinite(base) & torch.isfinite(found)
    if not bool(usable.any()):
        return None
    weight = torch.where(usable, base.abs(), 0.0).flatten(1)
    at = weight.argmax(1, keepdim=True)
    denominator = base.flatten(1).gather(1, at).squeeze(1)
    numerator = found.flatten(1).gather(1, at).squeeze(1)
    solvable = weight.gather(1, at).squeeze(1) > 0
    if not bool(solvable.any()):
        return None
    gain = torch.where(solvable, numerator / torch.where(solvable, denominator, 1.0), 0.0)
    gain = torch.where(solvable, gain, gain[solvable][0])
    left = difference(found, base * gain.view(-1, 1, 1), where=where)
    size = magnitude(torch.where(usable, found, 0.0))
    return (gain, left) if left <= RELATIVE * size else None


def one_gain(found: Tensor, base: Tensor, where: Tensor) -> tuple[float, float] | None:
    """Return (c, left) with found = c * base on `where`, or None."""
    usable = where & torch.isfinite(base) & torch.isfinite(found)
    weight = torch.where(usable, base.abs(), 0.0).flatten()
    at = int(weight.argmax()) if weight.numel() else 0
    if not weight.numel() or weight[at].item() == 0:
        return None
    gain = found.flatten()[at].item() / base.flatten()[at].item()
    left = difference(found, base * gain, where=where)
    size = magnitude(torch.where(usable, found, 0.0))
    return (gain, left) if gain != 0 and left <= RELATIVE * size else None


def capped_gain(
    found: Tensor, base: Tensor, where: Tensor
) -> tuple[tuple[Tensor, float], float] | None:
    """Return ((s (G,), left), cap) with found = cap * tanh(s * base / cap), or None.

    The cap is bisected so that the two entries of largest base agree on s.
    """
    usable = where & torch.isfinite(base) & torch.isfinite(found)
    picks = torch.where(usable, base.abs(), 0.0).flatten()
    if int((picks > 0).sum()) < 3:
        return None
    order = picks.argsort(descending=True)
    large = int(order[0])
    small = int(order[int((picks > 0).sum()) // 2])
    b1, f1 = base.flatten()[large].item(), found.flatten()[large].item()
    b2, f2 = base.flatten()[small].item(), found.flatten()[small].item()
    size = magnitude(torch.where(usable, found, 0.0))

    def gap(log_cap: float) -> float:
        cap = math.exp(log_cap)
        return cap * math.atanh(f1 / cap) / b1 - cap * math.atanh(f2 / cap) / b2

    low, high = math.log(size * (1 + 1e-12)), math.log(size * MOST_CAP)
    if size == 0 or abs(f1) < abs(f2) or gap(low) * gap(high) > 0:
        return None
    for _ in range(200):
        middle = (low + high) / 2
        if gap(low) * gap(middle) <= 0:
            high = middle
        else:
            low = middle
    cap = math.exp((low + high) / 2)
    gain = cap * math.atanh(f1 / cap) / b1
    left = difference(found, cap * torch.tanh(gain * base / cap), where=where)
    if left > RELATIVE * size:
        return None
    return (torch.full((base.shape[0],), gain, dtype=base.dtype, device=base.device), left), cap


def heads_mixed(
    view: SiteView, found: Tensor, base: Tensor, where: Tensor
) -> tuple[Tensor, float] | None:
    """Return (M, what is left) of found[b, i] = sum over heads j of M[j, i] base[b, j], or None.

    M is (h, h), the same for every sample and pair of positions (talking heads); least squares.
    """
    groups = view.groups
    if groups is None or groups.order.shape[1] < 2 or not bool(where.all()):
        return None
    heads = groups.order.shape[1]
    rows = groups.unfold(base).movedim(1, -1).reshape(-1, heads)
    wanted = groups.unfold(found).movedim(1, -1).reshape(-1, heads)
    if len(rows) < 3 * heads or not bool(torch.isfinite(rows).all() & torch.isfinite(wanted).all()):
        return None
    mix: Tensor = torch.linalg.lstsq(rows, wanted).solution
    left: float = (rows @ mix - wanted).abs().amax().item()
    return (mix, left) if left <= RELATIVE * magnitude(found) else None
