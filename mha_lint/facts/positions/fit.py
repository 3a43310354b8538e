"""Whether the channels that a rotation pairs fit together: lengths and right angles must be kept."""

from __future__ import annotations

import math
from collections import Counter

import torch
from torch import Tensor

from mha_lint.facts.positions.pairs import Turned
from mha_lint.model.position_facts import PairFault

EVEN = 0.02
"""Relative spread of lengths that tables in half precision may have."""
ASKEW = 0.05
"""Cosine of the angle between the two rows of a pair beyond which they are no rotation."""
MOVES = 1e-6


def moves_over_rows(turned: Turned) -> bool:
    """Return whether the map differs between two positions."""
    parts = (turned.one, turned.two)
    return any(bool(((x - x[:, :1]).abs() > MOVES).any()) for x in parts)


def lengths(turned: Turned) -> Tensor:
    """Return (G, R, F): the length of each feature's row of the map."""
    return (turned.one.square() + turned.two.square()).sqrt()


def level(turned: Turned) -> Tensor:
    """Return (G, F): whether that length is the same at all positions, as cos^2 + sin^2 is."""
    size = lengths(turned)
    low, high = size.amin(1), size.amax(1)
    return (high - low <= EVEN * high) & (high > 0)


def across(turned: Turned) -> Tensor:
    """Return (G, R, F): the cosine between a feature's row of the map and its partner's."""
    size = lengths(turned)
    product = turned.one * of_partner(turned, turned.one) + turned.two * of_partner(
        turned, turned.two
    )
    return product / (size * of_partner(turned, size)).clamp(min=1e-300)


def of_partner(turned: Turned, values: Tensor) -> Tensor:
    """Return `values` (G, R, F) of each feature's partner."""
    index = turned.partner.clamp(min=0)[:, None].expand(values.shape)
    return values.gather(2, index)


def is_rotation(turned: Turned) -> bool:
    """Return whether all that is mixed stands in pairs that keep lengths and right angles."""
    mixed = turned.high >= 0
    if not bool(mixed.any()) or not bool(turned.paired[mixed].all()):
        return False
    if not bool(level(turned)[mixed].all()):
        return False
    return bool((across(turned).abs().amax(1)[mixed] < ASKEW).all())


def pair_fault(turned: Turned) -> PairFault | None:
    """Return why the pairs of `turned` are no rotation, None where they are one or it is no attempt.

    An attempt at a rotation has rows of constant length (cos^2 + sin^2) that follow the position.
    """
    mixed = turned.high >= 0
    even = level(turned) & mixed
    if not moves_over_rows(turned):
        return None
    if not bool(mixed.any()):
        return PairFault.ALONE if _added_to_itself(turned) else None
    if int(even.sum()) * 2 < int(mixed.sum()):
        return None
    lone = mixed & (turned.shared != 1)
    if int(lone.sum()) * 2 >= int(mixed.sum()):
        if _torn(turned):
            return PairFault.TORN
        return PairFault.PARTNERS if _several_partners(turned) else None
    paired = even & turned.paired
    askew = paired & (across(turned).abs().amax(1) > ASKEW)
    if int(askew.sum()) * 4 < int(paired.sum()):
        return None
    one, two = turned.one.abs(), turned.two.abs()
    alike = (one - of_partner(turned, two)).abs() + (two - of_partner(turned, one)).abs()
    same = bool((alike.amax(1)[askew] < ASKEW).all())
    return PairFault.SIGNS if same else PairFault.ANGLES


def stretch(turned: Turned) -> tuple[float, float, int, int, int]:
    """Return the smallest and largest length that a vector of length 1 gets, and where the largest is.

    The place is (group, row, feature).
    """
    one, two = lengths(turned).square(), of_partner(turned, lengths(turned)).square()
    product = across(turned) * (one * two).sqrt()
    middle, spread = (one + two) / 2, ((one - two).square() / 4 + product.square()).sqrt()
    usable = (turned.paired & (turned.high >= 0))[:, None].expand(one.shape)
    high = torch.where(usable, middle + spread, torch.zeros_like(one))
    low = torch.where(usable, middle - spread, torch.full_like(one, math.inf))
    place = torch.unravel_index(high.argmax(), high.shape)
    group, row, feature = (int(p) for p in place)
    return (
        math.sqrt(max(0.0, float(low.min()))), math.sqrt(float(high.max())), group, row, feature
    )  # fmt: skip


def angle(turned: Turned, group: int, row: int, feature: int) -> float:
    """Return by how many radians (0 to pi/2) a feature's row is turned away from its own channel."""
    one, two = turned.one[group, :, feature].abs(), turned.two[group, :, feature].abs()
    own, other = (one, two) if float(one[0]) >= float(two[0]) else (two, one)
    return math.atan2(float(other[row]), float(own[row]))


def _added_to_itself(turned: Turned) -> bool:
    """Return whether pairs of features are multiplied by cos - sin and cos + sin."""
    width = turned.one.shape[2]
    if width % 2 or bool((turned.low < 0).any()):
        return False
    square, half = turned.one.square(), width // 2
    for one, other in (
        (slice(None, half), slice(half, None)),
        (slice(None, None, 2), slice(1, None, 2)),
    ):
        total = square[..., one] + square[..., other]
        apart = turned.low[:, one] != turned.low[:, other]
        steady = total.amax(1) - total.amin(1) <= EVEN * total.amax(1)
        if bool(apart.all()) and bool(steady.all()):
            return True
    return False


def _torn(turned: Turned) -> bool:
    """Return whether the second half of each pair is in another head."""
    if len(turned.turns) != 1 or not turned.whole:
        return False
    first = turned.samples == turned.samples[0]
    low, high = turned.low[first], turned.high[first]
    width = int(high.max()) + 2
    keys = torch.where(high >= 0, low * width + high, -1)
    once = Counter(keys[keys >= 0].tolist())
    within = turned.shared[first][high >= 0]
    return bool((within == 0).all()) and set(once.values()) == {2}


def _several_partners(turned: Turned) -> bool:
    """Return whether some channel stands in pairs with more than one other channel of its vector."""
    found: dict[int, set[int]] = {}
    low, high = turned.low[0].tolist(), turned.high[0].tolist()
    for a, b in zip(low, high, strict=True):
        if b >= 0:
            found.setdefault(a, set()).add(b)
            found.setdefault(b, set()).add(a)
    return sum(len(partners) > 1 for partners in found.values()) * 4 >= len(found) > 0
