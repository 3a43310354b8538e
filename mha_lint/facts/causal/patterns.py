"""Which pattern the mask of a site draws: a triangle, one that is off by a step, or none."""

from __future__ import annotations

import enum

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.levels import Levels, levels_of
from mha_lint.facts.order import NotArrangedError
from mha_lint.sites.site import Site

SMALLEST = 3
"""With fewer positions a triangle is no pattern yet."""
WEAK = 8.0
"""A future that lies this far below the past is meant to be hidden, and is so too weakly (MHA304)."""


class Pattern(enum.StrEnum):
    """What one score matrix, as many queries as keys, leaves visible."""

    CAUSAL = "causal"
    """No later key, and enough of the earlier ones."""
    STRICT = "strict"
    """Causal, but no query sees itself."""
    AHEAD = "ahead"
    """Every query sees the same number of later keys, and the earlier ones beside it."""
    REVERSE = "reverse"
    """No earlier key."""
    OPEN = "open"
    """All keys, and nothing that sets later ones apart."""
    PADDED = "padded"
    """All keys but some that no query sees: padding, and nothing that sets later keys apart."""
    OTHER = "other"


UNMASKED = (Pattern.OPEN, Pattern.PADDED)
"""Patterns that tell no later key from an earlier one."""


def pattern_of(bench: Bench, site: Site) -> Pattern | None:
    """Return the pattern of `site` (a member), None where it has no square of scores or no one pattern."""
    found = patterns_of(bench, site)
    return found[0] if len(set(found)) == 1 else (Pattern.OTHER if found else None)


def patterns_of(bench: Bench, site: Site) -> list[Pattern]:
    """Return the patterns of the groups of `site` (a member); none where it has no square of scores."""
    try:
        levels = levels_of(bench, site)
    except NotArrangedError:
        return []
    _, t_q, t_k = levels.level.shape
    if t_q != t_k or t_q < SMALLEST:
        return []
    visible, seen = levels.visible, {}
    for group in range(visible.shape[0]):
        key = tuple(visible[group].flatten().tolist())
        if key not in seen:
            seen[key] = _pattern(visible[group])
    found = list(seen.values())
    if set(found) == {Pattern.OPEN} and _set_apart(levels):
        return [Pattern.OTHER]
    return found


def ahead(visible: Tensor) -> int | None:
    """Return how many later keys each query of (T, T) sees, None where it is not the same for all."""
    size = visible.shape[0]
    place = torch.arange(size)
    last = torch.where(visible, place, -1).amax(1)
    if bool((last < 0).any()):
        return None
    count = int(last[0])
    same = last == (place + count).clamp(max=size - 1)
    return count if bool(same.all()) else None


def behind(visible: Tensor) -> int:
    """Return how many earlier keys a query of (T, T) sees at most."""
    place = torch.arange(visible.shape[0])
    return int(torch.where(visible, place[:, None] - place, 0).amax())


def _pattern(visible: Tensor) -> Pattern:
    size = visible.shape[0]
    later = torch.ones(size, size, dtype=torch.bool).triu(1)
    if bool(visible.all()):
        return Pattern.OPEN
    if _padded(visible):
        return Pattern.PADDED
    beside = bool(visible.diagonal(-1).all())  # each query sees the key before its own
    own = visible.diagonal()
    if not bool((visible & later).any()):
        past = int((visible & later.T).sum())
        if not bool(own.any()) and beside:
            return Pattern.STRICT
        return Pattern.CAUSAL if bool(own.all()) and past >= size - 1 else Pattern.OTHER
    if not bool((visible & later.T).any()):
        return Pattern.REVERSE
    count = ahead(visible)
    # The first row alone sees that many, so at least two rows must show that it is no accident.
    if count is not None and 0 < count < size - 2 and beside and bool(own.all()):
        steps = [bool(visible.diagonal(n).all()) for n in range(1, count + 1)]
        return Pattern.AHEAD if all(steps) else Pattern.OTHER
    return Pattern.OTHER


def _padded(visible: Tensor) -> bool:
    """Return whether all queries that see something see the same keys, the last one before others."""
    rows, keys = visible.any(1), visible.any(0)
    count = int(keys.sum())
    if not bool((visible == (rows[:, None] & keys)).all()):
        return False
    return count >= SMALLEST and int(rows.sum()) >= SMALLEST


def _set_apart(levels: Levels) -> bool:
    """Return whether a mask that hides nothing acts on later keys unlike on earlier ones."""
    if not bool(levels.follows.all()):
        return True
    size = levels.level.shape[1]
    later = torch.ones(size, size, dtype=torch.bool).triu(1)
    level = levels.level[:, 1:-1]  # the first row has no earlier key, the last one no later key
    low = torch.where(later[1:-1], level, -torch.inf).amax(-1)
    high = torch.where(later[1:-1] | torch.eye(size, dtype=torch.bool)[1:-1], torch.inf, level)
    return bool((high.amin(-1) - low > WEAK).all())
