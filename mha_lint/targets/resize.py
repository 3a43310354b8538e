"""Other consistent sizes of a subject: head count, widths, head_dim and lengths changed together.

At one size different readings of a scale coincide (at d_model 64 and 8 heads, h**-0.5 *is*
d_k**-0.5), so every subject is measured at a second one. The new sizes are chosen such that heads,
head_dim, length, width and batch are all different, and heads do not divide the length.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import torch

from mha_lint.targets.infer.vocabulary import Role
from mha_lint.targets.rescale import NewSizes, rescale_call
from mha_lint.targets.slots import BuildExpression, Slot
from mha_lint.targets.subject import Recipe, Subject
from mha_lint.targets.tensors import tensors_in
from mha_lint.targets.timelimit import TimeLimitError, time_limit

if TYPE_CHECKING:
    from mha_lint.targets.make import FileMaker

FACTORS = tuple(Fraction(f) for f in ("3/2", "5/4", "2", "5/2", "3", "5/3", "4/3", "1/2", "3/4"))
HEADS = (3, 5, 2, 6, 4, 8, 10, 12, 1)
MOST_TRIES = 28
SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a subject that matter for a scale; None: it has no such argument."""

    width: int | None
    heads: int | None
    kv_heads: int | None
    lengths: tuple[int, ...]
    batch: int
    own_head_dim: int | None = None
    grid: tuple[int, int, int] | None = None
    """(length, height, width) of a grid whose sides are passed as ints."""

    @property
    def head_dim(self) -> int | None:
        """Return the head width that was given, else width / heads where it comes out even."""
        if self.own_head_dim is not None:
            return self.own_head_dim
        if self.width is None or not self.heads or self.width % self.heads:
            return None
        return self.width // self.heads


@dataclass(frozen=True, slots=True)
class Change:
    """New sizes: widths are multiplied by ``factor``."""

    factor: Fraction
    heads: int | None
    lengths: tuple[int, ...]


def resized(maker: FileMaker, subject: Subject) -> Iterator[Subject]:
    """Yield `subject` at other sizes that run, the most thorough change first."""
    expression = build_expression(subject)
    now = read_sizes(subject, expression)
    seen: set[tuple[str, str]] = {(subject.build, subject.call)}
    for tried, change in enumerate(itertools.islice(changes(now), 3 * MOST_TRIES)):
        if tried >= MOST_TRIES:
            return
        recipe = _recipe(subject, expression, now, change)
        if recipe is None or (recipe.build, recipe.call) in seen:
            continue
        seen.add((recipe.build, recipe.call))
        try:
            with time_limit(SECONDS):
                made = maker.make(recipe)
        except TimeLimitError:
            return
        except Exception:  # sizes that the user's code does not take
            continue
        yield made


def build_expression(subject: Subject) -> BuildExpression:
    """Return the build expression of `subject`, the widths of its inputs known to it."""
    tensors = [*tensors_in(subject.args), *tensors_in(tuple(subject.kwargs.values()))]
    widths = {t.shape[-1] for t in tensors if t.dim() > 1 and t.is_floating_point()}
    return BuildExpression(subject.recipe.build, subject.namespace, widths)


def read_sizes(subject: Subject, expression: BuildExpression) -> Sizes:
    """Read the sizes of `subject` off its build expression and its arguments."""
    tensors = list(tensors_in(subject.args)) + list(tensors_in(tuple(subject.kwargs.values())))
    by_role: dict[Role, list[int]] = {}
    for slot in expression.slots:
        if slot.role is not None:
            by_role.setdefault(slot.role, []).append(slot.value)
    heads = next(iter(by_role.get(Role.HEADS, [])), None)
    last = [t.shape[-1] for t in tensors if t.dim() > 1]
    widths = by_role.get(Role.WIDTH, [])
    fitting = [w for w in widths if not heads or w % heads == 0] or widths
    width = next((w for w in fitting if w in last), next(iter(fitting), None))
    batch, batch_axis = _batch(tensors)
    known = {*widths, heads, width, *by_role.get(Role.HEAD_DIM, [])}
    if width is not None and heads:
        known.add(width // heads)
    lengths = {
        n
        for t in tensors
        for axis, n in enumerate(t.shape)
        if n > 1 and n not in known and _is_length(t, axis, batch, widths, alone=len(tensors) == 1)
    }
    lengths |= {t.shape[-2] for t in tensors if t.dim() >= 3 and t.shape[-2] > 1}
    if batch_axis == 1:
        lengths = (lengths - {batch}) | {t.shape[0] for t in tensors if t.dim() == 3}
    kv_heads = next(iter(by_role.get(Role.KV_HEADS, [])), None)
    head_dims = by_role.get(Role.HEAD_DIM, [])
    own = next((d for d in head_dims if width is None or not heads or d * heads != width), None)
    sides = [v for v in subject.args if type(v) is int]
    grid = next(
        ((n, a, b) for a, b in itertools.pairwise(sides) for n in sorted(lengths) if a * b == n),
        None,
    )
    return Sizes(width, heads, kv_heads, tuple(sorted(lengths)), batch, own, grid)


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
    numbers = [heads, head_dim, wide, now.batch, *change.lengths]
    collisions = len(numbers) - len(set(numbers))
    collisions += sum(n % heads == 0 for n in change.lengths) if heads > 1 else 3
    collisions += head_dim == old_head_dim
    odd = 0
    for power in (2, 4, 8):
        odd += old_head_dim % power == 0 and head_dim % power != 0
    unlike_kv = bool(now.kv_heads) and _kv_heads(now, change.heads) is None
    tiny = head_dim < 4 or wide < now.width // 2 or wide > 3 * now.width
    return (int(unlike_kv), int(tiny), odd > 1, collisions, odd, wide)


def _kv_heads(now: Sizes, heads: int | None) -> int | None:
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


def _longer(
    now: Sizes, width: int = 0, heads: int | None = None, *, doubled: bool = False
) -> tuple[int, ...]:
    """Return new lengths, in the order of the old ones, that coincide with nothing else."""
    if doubled:
        return tuple(2 * n for n in now.lengths)
    taken = {width, heads, now.batch, now.width, now.heads}
    if heads:
        taken |= {width // heads}
    found: list[int] = []
    for old in now.lengths:
        new = old + 1
        while new in taken or new in found or (heads and heads > 1 and new % heads == 0):
            new += 1
        found.append(new)
    return tuple(found)


def _recipe(
    subject: Subject, expression: BuildExpression, now: Sizes, change: Change
) -> Recipe | None:
    values: dict[Slot, int] = {}
    lengths = dict(zip(now.lengths, change.lengths, strict=True))
    if now.grid is not None:
        area, high, across = now.grid
        wider = across + 1
        lengths |= {area: (wider if high == across else high) * wider, across: wider}
    new_head_dim: int | None = None
    if now.width is not None and change.heads:
        wide = int(now.width * change.factor)
        new_head_dim = wide // change.heads if wide % change.heads == 0 else None
        if now.own_head_dim is not None:
            scaled = now.own_head_dim * change.factor
            new_head_dim = int(scaled) if scaled.denominator == 1 else None
    new_kv = _kv_heads(now, change.heads)
    if now.kv_heads and now.heads != change.heads and new_kv is None:
        return None
    widths: dict[int, int] = {}
    for slot in expression.slots:
        new = _new_value(slot, now, change, lengths, new_head_dim, new_kv)
        if new is None:
            return None
        if new != slot.value:
            values[slot] = new
        if slot.role in (Role.WIDTH, Role.HEAD_DIM, Role.INNER):
            widths.setdefault(slot.value, new)
    heads = {}
    if now.heads and change.heads:
        heads[now.heads] = change.heads
    if now.kv_heads and new_kv:
        heads.setdefault(now.kv_heads, new_kv)
    if now.head_dim and new_head_dim:
        widths.setdefault(now.head_dim, new_head_dim)
    halves = {}
    if now.head_dim and new_head_dim and now.head_dim % 2 == 0 and new_head_dim % 2 == 0:
        halves[now.head_dim // 2] = new_head_dim // 2
    batch = 0 if now.batch in now.lengths else now.batch
    sizes = NewSizes(widths, heads, lengths, halves, batch)
    call = rescale_call(subject.call, sizes)
    build = expression.with_values(values)
    if subject.build in call and subject.build != build:
        call = call.replace(subject.build, build)
    return Recipe(build, call, subject.recipe.how)


def _new_value(
    slot: Slot,
    now: Sizes,
    change: Change,
    lengths: dict[int, int],
    head_dim: int | None,
    kv_heads: int | None,
) -> int | None:
    """Return the new value of one slot; None: this change is not possible."""
    value = slot.value
    match slot.role:
        case Role.WIDTH | Role.INNER:
            return _times(value, change)
        case Role.HEADS:
            return change.heads if value == now.heads and change.heads else value
        case Role.KV_HEADS:
            return kv_heads if value == now.kv_heads and kv_heads else value
        case Role.HEAD_DIM:
            return (
                head_dim if value == now.head_dim and head_dim else _times(value, change) or value
            )
        case Role.LENGTH | Role.SOURCE:
            if value in lengths:
                return lengths[value]
            if lengths and value >= max(lengths):
                return max(value, *lengths.values())
            return value
        case None if value == now.width and value > 8:
            return int(value * change.factor)
        case None if value == now.heads and change.heads and value > 1 and slot.name:
            return change.heads
        case _:
            return value


def _times(value: int, change: Change) -> int | None:
    product = value * change.factor
    return int(product) if product.denominator == 1 else None


def _batch(tensors: list[torch.Tensor]) -> tuple[int, int]:
    """Return the batch size and its axis: 1 where the first axis counts positions."""
    if not tensors or tensors[0].dim() < 2:
        return 1, 0
    three = [t for t in tensors if t.dim() == 3]
    if (
        len(three) > 1
        and len({t.shape[0] for t in three}) > 1
        and len({t.shape[1] for t in three}) == 1
    ):
        return int(three[0].shape[1]), 1
    first = tensors[0].shape
    if len(three) == 1 and len(first) == 3 and first[1] < first[0] and 1 < first[1] <= 3:
        return int(first[1]), 1
    return int(first[0]), 0


def _is_length(
    tensor: torch.Tensor, axis: int, batch: int, widths: list[int], *, alone: bool
) -> bool:
    """Tell whether `axis` counts positions: no batch axis, no lengths of samples."""
    if axis:
        last = axis == tensor.dim() - 1
        return not (last and tensor.dim() > 2 and tensor.is_floating_point() and not widths)
    if tensor.dim() == 1:
        return tensor.shape[0] != batch
    if tensor.dim() != 2:
        return False
    return tensor.shape[0] != batch or (alone and tensor.shape[1] in widths)
