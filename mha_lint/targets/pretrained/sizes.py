"""Smaller values for the integers of a config, such that what held between them still holds.

All widths of all parts are divided by one number, so ratios, sums and equalities of widths stay.
Heads and head dims follow their part's width. The rest is mapped value by value: equal stays
equal, and an order stays an order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from mha_lint.targets.pretrained.heads import Part, fitted_heads
from mha_lint.targets.pretrained.leaves import Leaf, Path, leaves, scopes
from mha_lint.targets.pretrained.pictures import smaller_images
from mha_lint.targets.pretrained.roles import SMALL, Role
from mha_lint.targets.words import words

NARROWEST = 32
"""The least main width."""
MAIN = words(
    """hidden_size d_model n_embd embed_dim hidden_dim dim emb_dim embed_size d_embed
    encoder_hidden_size decoder_hidden_size embedding_dim width"""
)
POSITIONS = (64, 96)
WINDOW = 4
GAP = 300
"""Numbers of tokens nearer to each other than this keep their difference."""
_TOKENS_FROM = 60


def smaller(
    values: dict[str, Any], *, variant: int, undone: frozenset[str], wider: int
) -> dict[Path, int]:
    """Return new integers by path. ``undone``: roles and keys that stay. ``wider``: doublings."""
    found = [x for x in leaves(values) if x.role not in undone and x.key not in undone]
    new: dict[Path, int] = {}
    share = _share(found, variant, wider) if Role.WIDTH not in undone else Fraction(1)
    for leaf in found:
        if leaf.role is Role.WIDTH:
            new[leaf.path] = _narrowed(leaf.value, share)
    for path, _ in scopes(values):
        own = [leaf for leaf in found if leaf.scope == path]
        own_widths = [x for x in leaves(values) if x.scope == path and x.role is Role.WIDTH]
        main = [x for x in own_widths if x.key.lower() in MAIN] or own_widths
        part = Part(
            tuple(own),
            tuple((w.value, new.get(w.path, w.value)) for w in main),
            tuple((w.value, new.get(w.path, w.value)) for w in own_widths),
        )
        new |= fitted_heads(part, variant)
    new |= smaller_images(found, variant)
    new |= _numbered(found, {Role.VOCABULARY, Role.TOKEN}, _shifted)
    new |= _numbered(found, {Role.CODES}, _halved)
    new |= _by_rank(found, Role.POSITIONS, POSITIONS[variant], 16)
    for leaf in found:
        value = _alone(leaf, found)
        if value is not None:
            new[leaf.path] = value
    return new


def _share(found: Sequence[Leaf], variant: int, wider: int) -> Fraction:
    """Return what all widths are multiplied by: the second variant is half as wide again."""
    with_heads = {x.scope for x in found if x.role is Role.HEADS}
    main = [x.value for x in found if x.role is Role.WIDTH and x.key.lower() in MAIN]
    main = [v for v in main if v > SMALL]
    if not main:
        lists = [x.value for x in found if x.role is Role.WIDTH and x.in_list]
        main = lists or [x.value for x in found if x.role is Role.WIDTH and x.scope in with_heads]
    main = main or [x.value for x in found if x.role is Role.WIDTH]
    if not main:
        return Fraction(1)
    least = min(NARROWEST, min(main))
    divisor = 1
    while min(main) // (divisor * 2) >= least and all(v % (divisor * 2) == 0 for v in main):
        divisor *= 2
    if max(main) // divisor > 256:  # one odd width holds all back: let it be rounded
        while min(main) // (divisor * 2) >= 16 and max(main) // divisor > 256:
            divisor *= 2
    divisor = max(1, divisor >> wider)
    if variant and all(v * 3 % (2 * divisor) == 0 for v in main) and divisor > 1:
        return Fraction(3, 2 * divisor)
    return Fraction(1, divisor)


def _narrowed(value: int, share: Fraction) -> int:
    exact = value * share
    if exact.denominator == 1 and exact >= 4:
        return int(exact)
    rounded = math.ceil(exact / 4) * 4
    return min(value, max(8, rounded))


def _numbered(found: Iterable[Leaf], roles: set[Role], order: Any) -> dict[Path, int]:
    some = [leaf for leaf in found if leaf.role in roles]
    mapped = order(sorted({leaf.value for leaf in some}))
    return {leaf.path: mapped[leaf.value] for leaf in some}


def _shifted(numbers: list[int]) -> dict[int, int]:
    """Move numbers together: order and small differences stay."""
    mapped: dict[int, int] = {}
    last = last_new = 0
    for number in numbers:
        if number <= _TOKENS_FROM:
            new = number
        else:
            step = number - last
            start = max(last_new, _TOKENS_FROM)
            new = start + (step if step <= GAP and last > _TOKENS_FROM else min(step, 40))
        mapped[number] = new
        last, last_new = number, new
    return mapped


def _halved(numbers: list[int]) -> dict[int, int]:
    """Divide numbers by one power of two: powers stay powers."""
    divisor = 1
    while numbers and all(n % (divisor * 2) == 0 and n // (divisor * 2) >= 32 for n in numbers):
        divisor *= 2
    return {n: n // divisor for n in numbers}


def _by_rank(found: Iterable[Leaf], role: Role, least: int, step: int) -> dict[Path, int]:
    some = [leaf for leaf in found if leaf.role is role]
    large = sorted({leaf.value for leaf in some if leaf.value > least})
    mapped = {value: min(value, least + step * rank) for rank, value in enumerate(large)}
    return {leaf.path: mapped.get(leaf.value, leaf.value) for leaf in some}


def _windows_in(leaf: Leaf, found: Sequence[Leaf]) -> int:
    """Return how many of the windows that a window is named after it holds."""
    shorter = (
        x.value
        for x in found
        if x.role is Role.WINDOW and x.scope == leaf.scope and leaf.key.startswith(x.key + "_")
    )
    return next((leaf.value // n for n in shorter if n and leaf.value % n == 0), 1)


def _alone(leaf: Leaf, found: Sequence[Leaf]) -> int | None:
    """Return the new value of an integer that depends on no width."""
    value = leaf.value
    match leaf.role:
        case Role.EXPERTS:
            grouped = any(
                x.role is Role.GROUPS and x.scope == leaf.scope and x.value > 1 for x in found
            )
            return min(value, 8 if grouped else 4)
        case Role.CHOSEN:
            return min(value, 2)
        case Role.GROUPS:
            return min(value, 2)
        case Role.CHOSEN_GROUPS:
            return min(value, 1)
        case Role.WINDOW:
            return min(value, WINDOW * _windows_in(leaf, found))
        case Role.TILE:
            return value if value > 64 or leaf.in_list else min(value, WINDOW)
        case Role.NORM_GROUPS:
            return 4 if value % 4 == 0 else value
        case Role.QUERIES:
            return min(value, 12)
        case Role.CODEBOOKS | Role.FRAMES:
            return min(value, 4)
        case _:
            return None
