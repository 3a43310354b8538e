"""Choose other sizes such that no two readings of a scale coincide at them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from mha_lint.targets.current_sizes import Sizes

FACTORS = tuple(Fraction(f) for f in ("3/2", "5/4", "2", "5/2", "3", "5/3", "4/3", "1/2", "3/4"))
HEADS = (3, 5, 2, 6, 4, 8, 10, 12, 1)


@dataclass(frozen=True, slots=True)
class Change:
    """New sizes: widths are multiplied by ``factor``."""

    factor: Fraction
    heads: int | None
    lengths: tuple[int, ...]


def changes(now: Sizes) -> Iterator[Change]:
    """Yield new sizes: everything changed first, then less and less."""
    full = sorted(_all_changed(now), key=lambda c: _badness(now, c))
    yield from full[:6]
    even = [_longer(now, doubled=True)]
    yield from (Change(c.factor, c.heads, even[0]) for c in full[:3])
    yield from (Change(c.factor, c.heads, now.lengths) for c in full[:3])
    lengths = _longer(now)
    for factor in FACTORS[:5] if now.width is not None else ():
        yield Change(factor, now.heads, lengths)
        yield Change(factor, now.heads, now.lengths)
    for heads in HEADS if now.heads else ():
        if heads != now.heads and (now.width is None or now.width % heads == 0):
            yield Change(Fraction(1), heads, lengths)
            yield Change(Fraction(1), heads, now.lengths)
    yield Change(Fraction(1), now.heads, lengths)
    yield Change(Fraction(1), now.heads, even[0])


def _all_changed(now: Sizes) -> Iterator[Change]:
    for factor in FACTORS:
        if now.width is None:
            break
        wide = now.width * factor
        if wide.denominator != 1:
            continue
        for heads in HEADS if now.heads else (None,):
            if heads == now.heads and heads is not None:
                continue
            if heads is not None and int(wide) % heads and now.own_head_dim is None:
                continue
            yield Change(factor, heads, _longer(now, int(wide), heads))


def _badness(now: Sizes, change: Change) -> tuple[int, ...]:
    """Rank a change: few coincidences among the new sizes, an even head_dim, small."""
    if now.width is None:
        return (0,)
    wide = int(now.width * change.factor)
    heads = change.heads or 1
    head_dim = wide // heads
    if now.own_head_dim is not None:
        head_dim = int(now.own_head_dim * change.factor)
    old_head_dim = now.head_dim or 0
    numbers = [heads, head_dim, wide, now.batch, *change.lengths, *now.fixed]
    collisions = len(numbers) - len(set(numbers))
    collisions += sum(n % heads == 0 for n in change.lengths) if heads > 1 else 3
    collisions += head_dim == old_head_dim
    kv_heads = kv_heads_for(now, change.heads)
    if now.kv_heads and kv_heads:
        collisions += wide * now.kv_heads == now.width * kv_heads  # width per key/value head
    odd = 0
    for power in (2, 4, 8):
        odd += old_head_dim % power == 0 and head_dim % power != 0
    unlike_kv = bool(now.kv_heads) and kv_heads is None
    tiny = head_dim < 4 or wide < now.width // 2 or wide > 3 * now.width
    return (int(unlike_kv), int(tiny), odd > 1, collisions, odd, wide)


def kv_heads_for(now: Sizes, heads: int | None) -> int | None:
    """Return key/value heads for `heads`: as many per group as before, or at least a real group."""
    if not now.kv_heads or not now.heads or not heads:
        return None
    if now.kv_heads in (1, now.heads):
        return heads if now.kv_heads == now.heads else 1
    proper = [n for n in range(2, heads) if heads % n == 0]
    same = heads * now.kv_heads // now.heads
    if not proper:
        return None
    return same if same in proper else proper[-1]


def of_keys(now: Sizes, change: Change, head_dim: int | None) -> dict[int, int]:
    """Return other lengths for what is attended to, where several tensors share one length."""
    width = int(now.width * change.factor) if now.width is not None else 0
    taken = {*change.lengths, *now.lengths, *now.fixed, now.batch, now.width, width}
    taken |= {now.heads, change.heads, head_dim}
    found: dict[int, int] = {}
    for old, new in zip(now.lengths, change.lengths, strict=True):
        if old not in now.shared:
            continue
        other = new + 1
        while other in taken or (change.heads and change.heads > 1 and other % change.heads == 0):
            other += 1
        taken.add(other)
        found[old] = other
    return found


def _longer(
    now: Sizes, width: int = 0, heads: int | None = None, *, doubled: bool = False
) -> tuple[int, ...]:
    """Return new lengths, in the order of the old ones, that coincide with nothing else."""
    if doubled:
        return tuple(2 * n for n in now.lengths)
    taken = {width, heads, now.batch, now.width, now.heads, *now.fixed}
    if heads:
        taken |= {width // heads}
    found: list[int] = []
    for old in now.lengths:
        new = old + 1
        while new in taken or new in found or (heads and heads > 1 and new % heads == 0):
            new += 1
        found.append(new)
    return tuple(found)
