"""Heads and head dims that fit a narrower part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mha_lint.targets.pretrained.leaves import Leaf, Path
from mha_lint.targets.pretrained.roles import Role

PREFERRED = ((4, 6, 3, 8, 2, 5, 7, 9, 10, 12, 16, 1), (6, 3, 8, 4, 5, 2, 9, 7, 10, 12, 16, 1))
LEAST_DIM = 8


@dataclass(frozen=True, slots=True)
class Part:
    """One part's integers; its main widths and all its widths, each as (old, new)."""

    leaves: tuple[Leaf, ...]
    main: tuple[tuple[int, int], ...]
    widths: tuple[tuple[int, int], ...]


def fitted_heads(part: Part, variant: int) -> dict[Path, int]:
    """Return new numbers of heads, key/value heads, head dims and rotary sections."""
    new: dict[Path, int] = {}
    heads = [x for x in part.leaves if x.role in (Role.HEADS, Role.KV_HEADS) and x.value > 0]
    dims = [x for x in part.leaves if x.role is Role.HEAD_DIM and x.value > 0]
    query = [x.value for x in heads if x.role is Role.HEADS and not x.in_list]
    staged = [x for x in heads if x.in_list]
    main = _first_heads(heads)
    mapped: dict[int, int] = {}
    if query:
        ratios = sorted({x.value for x in heads if not x.in_list})
        mapped = _chosen(main, ratios, part, variant, {d.value for d in dims})
        new |= {x.path: mapped[x.value] for x in heads if not x.in_list}
    new |= _staged(staged, part)
    scale = _dims(dims, mapped, main, part, new)
    _sections(part, mapped, main, scale, new)
    return new


def _first_heads(heads: Sequence[Leaf]) -> int:
    plain = ("num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads")
    by_key = {x.key: x.value for x in heads if x.role is Role.HEADS and not x.in_list}
    return next((by_key[k] for k in plain if k in by_key), max(by_key.values(), default=0))


def _chosen(
    main: int, counts: Sequence[int], part: Part, variant: int, dims: set[int]
) -> dict[int, int]:
    """Choose how many heads there are instead of `main`, and the other counts along with it."""
    best: tuple[float, dict[int, int]] | None = None
    widths = [(old, new) for old, new in part.main if old % main == 0]
    for rank, heads in enumerate((*PREFERRED[variant], main)):
        if heads > main:
            continue
        mapped = {count: _along(count, main, heads) for count in counts}
        penalty = 0.1 * rank
        for count in counts:
            if 1 < count < main and not 1 < mapped[count] < heads:
                penalty += 3  # groups of queries that share keys stay groups
        for old, new in widths:
            if new % heads:
                penalty += 20
                continue
            dim, before = new // heads, old // main
            penalty += 8 * (before % 4 == 0 and dim % 4 != 0) + 8 * (before % 2 == 0 and dim % 2)
            penalty += 2 * (dim < min(LEAST_DIM, before)) + 1.5 * (dim == heads)
            penalty += 1.5 * (dim in mapped.values())
        for count in counts:
            for old, new in part.main:
                penalty += 10 * (old % count == 0 and new % mapped[count] != 0)
        if best is None or penalty < best[0]:
            best = (penalty, mapped)
    assert best is not None
    return best[1]


def _along(count: int, main: int, heads: int) -> int:
    """Return what becomes of `count` heads where `main` become `heads`."""
    if count == main or count <= 1:
        return heads if count == main else count
    if count * heads % main == 0 and count * heads // main > 1:
        return count * heads // main
    if count > main:
        return heads * max(1, round(count / main)) if count % main == 0 else min(count, heads)
    divisors = [d for d in range(2, heads) if heads % d == 0]
    return max(divisors, default=1)


def _staged(heads: Sequence[Leaf], part: Part) -> dict[Path, int]:
    """Return heads of stages: as many as the stage's width takes."""
    factor = next((new / old for old, new in part.main if new < old), 1.0)
    result: dict[Path, int] = {}
    for leaf in heads:
        fitting = leaf.value
        if factor < 1:
            while fitting % 2 == 0 and fitting > 2 and _too_thin(fitting, factor, leaf):
                fitting //= 2
        result[leaf.path] = fitting
    return result


def _too_thin(heads: int, factor: float, leaf: Leaf) -> bool:
    """Assume head dims of 32 or so, as stages have them."""
    return heads > leaf.value * factor * 4


def _dims(
    dims: Sequence[Leaf], mapped: dict[int, int], main: int, part: Part, new: dict[Path, int]
) -> float:
    """Add new head dims, and return what the main one was multiplied by."""
    if not dims:
        return 1.0
    divisor = 1
    wide = [d.value for d in dims if d.value > LEAST_DIM]
    while wide and all(v % (divisor * 2) == 0 and v // (divisor * 2) >= LEAST_DIM for v in wide):
        divisor *= 2
    scale = 1 / divisor
    for old, narrow in part.main:
        if not main or old % main or mapped.get(main, 0) == 0 or narrow % mapped[main]:
            continue
        if any(d.value * main == old for d in dims):
            scale = (narrow // mapped[main]) / (old // main)
            break
    for leaf in dims:
        bound = _bound(leaf, mapped, part)
        value = leaf.value * scale
        whole = int(value) if value == int(value) else max(2, round(value / 2) * 2)
        if whole < 4 or (leaf.value % 2 == 0 and whole % 2):
            whole = max(4, whole + whole % 2)
        new[leaf.path] = bound or min(whole, leaf.value)
    return scale


def _bound(leaf: Leaf, mapped: dict[int, int], part: Part) -> int | None:
    """Return the head dim whose product with its heads is a width, as it was."""
    prefix = re.sub(r"(head_dim|head_size|d_head|dim_head)$", "", leaf.key)
    heads = [x for x in part.leaves if x.role is Role.HEADS and not x.in_list]
    if prefix and prefix != leaf.key:
        heads = [x for x in heads if x.key.startswith(prefix)]
        pairs = [(o * t, n * t) for o, n in part.main + part.widths for t in (1, 2, 4)]
    elif leaf.key in ("head_dim", "d_head", "d_kv", "attention_head_dim"):
        expanded = {1} | {x.value for x in part.leaves if "expand" in x.key}
        pairs = [(o * t, n * t) for o, n in part.main for t in sorted(expanded)]
    else:
        return None
    for count in heads:
        few = mapped.get(count.value, count.value)
        for old, narrow in pairs:
            if count.value * leaf.value == old and narrow % few == 0:
                return narrow // few
    return None


def _sections(
    part: Part, mapped: dict[int, int], main: int, scale: float, new: dict[Path, int]
) -> None:
    """Let rotary sections add up to the same share of the head dim."""
    explicit = [x for x in part.leaves if x.key == "head_dim" and x.value > 0]
    if explicit:
        factor = new.get(explicit[0].path, explicit[0].value) / explicit[0].value
    else:
        factor = scale
        for old, narrow in part.main:
            if main and old % main == 0 and mapped.get(main):
                factor = (narrow / mapped[main]) / (old / main)
                break
    by_list: dict[Path, list[Leaf]] = {}
    for leaf in part.leaves:
        if leaf.role is Role.SECTION and leaf.in_list:
            by_list.setdefault(leaf.path[:-1], []).append(leaf)
    for items in by_list.values():
        total = round(sum(x.value for x in items) * factor)
        exact = [x.value * factor for x in items]
        whole = [max(1, int(e)) for e in exact]
        while sum(whole) < total:
            gaps = [e - w for e, w in zip(exact, whole, strict=True)]
            whole[gaps.index(max(gaps))] += 1
        while sum(whole) > total and max(whole) > 1:
            whole[whole.index(max(whole))] -= 1
        new |= {x.path: w for x, w in zip(items, whole, strict=True)}
