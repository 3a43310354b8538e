"""What shape the visible pairs of a site have: a triangle, or a band beside the diagonal."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.once import once
from mha_lint.sites.site import Site

SMALLEST = 3
"""With fewer positions a triangle cannot be told from other masks."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A staircase: ``side`` "earlier" or "later", whether a row sees itself, and whether it is whole.

    ``whole`` is false for a band: the row does not see all of its side. ``offset``: the last key of
    the first row.
    """

    side: str
    itself: bool
    whole: bool
    offset: int


@once
def pattern_at(bench: Bench, site: Site, *, square: bool) -> Pattern | None:
    """Return the staircase of `site`, a single site or a member of a group.

    Raises:
        NotArrangedError: as `levels_of` does.
    """
    return pattern_of(levels_of(bench, site).visible, square=square)


def pattern_of(visible: Tensor, *, square: bool) -> Pattern | None:
    """Return the staircase that every group of `visible` (G, T_q, T_k) has, None if there is none.

    Keys that nobody sees and queries that see nothing are left aside: they are padding. With
    `square` False the staircase may also end at the last query and the last key.
    """
    t_q, t_k = visible.shape[1:]
    if t_q < 2 or t_k < SMALLEST or (square and (t_q != t_k or t_q < SMALLEST)):
        return None
    offsets = [0] if square or t_q == t_k else [0, t_k - t_q]
    for offset in offsets:
        found = _at(visible, offset)
        if found is not None:
            return found
    return None


def _at(visible: Tensor, offset: int) -> Pattern | None:
    t_q, t_k = visible.shape[1:]
    ahead = torch.arange(t_k)[None, :] - torch.arange(t_q)[:, None] - offset
    if bool((visible & (ahead > 0)).any()):
        if bool((visible & (ahead < 0)).any()):
            return None
        side, own = "later", ahead > 0
    elif bool((visible & (ahead < 0)).any()):
        side, own = "earlier", ahead < 0
    else:
        return None
    if side == "later" and offset > 0:
        return None
    # A row or column without any place on that side is empty as it should be, and no padding.
    some = visible.any(-1, keepdim=True) | ~own.any(-1, keepdim=True)
    seen = visible.any(1, keepdim=True) | ~own.any(0, keepdim=True)
    judged = (some & seen).expand_as(visible)
    whole = bool(visible[judged & own].all())
    if not whole and not _is_band(visible, judged & own, ahead):
        return None
    if not bool((judged & visible.any(1, keepdim=True) & ~own & (ahead != 0)).any()):
        return None
    itself = bool((visible & (ahead == 0)).any())
    return Pattern(side, itself, whole, offset)


def _is_band(visible: Tensor, judged: Tensor, ahead: Tensor) -> bool:
    """Return whether what is visible depends on the distance alone, and some distances are not."""
    levels = []
    for distance in sorted(set(ahead.flatten().tolist())):
        there = judged & (ahead == distance)
        found = visible[there]
        if found.numel():
            if bool(found.any()) != bool(found.all()):
                return False
            levels.append(bool(found.all()))
    return len(set(levels)) == 2


def triangle_in(value: Tensor) -> tuple[bool, bool] | None:
    """Return (yes lies above the diagonal, the diagonal is yes) of a square of two numbers, else None.

    For numbers that are added, "yes" is what is not 0.
    """
    flat = value
    while flat.dim() > 2 and flat.shape[0] == 1:
        flat = flat[0]
    if flat.dim() != 2 or flat.shape[0] != flat.shape[1] or flat.shape[0] < SMALLEST:
        return None
    yes = flat != 0
    n = flat.shape[0]
    above = torch.ones(n, n, dtype=torch.bool).triu(1)
    upper, lower, diagonal = yes[above], yes[above.T], yes.diagonal()
    if bool(upper.all()) and not bool(lower.any()):
        on_top = True
    elif bool(lower.all()) and not bool(upper.any()):
        on_top = False
    else:
        return None
    if bool(diagonal.all()):
        return on_top, True
    return (on_top, False) if not bool(diagonal.any()) else None
