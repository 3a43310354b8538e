"""Other consistent sizes of a subject: head count, widths, head_dim and lengths changed together.

At one size different readings of a scale coincide (at d_model 64 and 8 heads, h**-0.5 *is*
d_k**-0.5), so every subject is measured at a second one. The new sizes are chosen such that heads,
head_dim, length, width and batch are all different, and heads do not divide the length.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mha_lint.targets.current_sizes import Sizes, build_expression, read_sizes
from mha_lint.targets.infer.vocabulary import Role
from mha_lint.targets.new_sizes import Change, changes, kv_heads_for, of_keys
from mha_lint.targets.rescale import NewSizes, rescale_call
from mha_lint.targets.slots import BuildExpression, Slot
from mha_lint.targets.subject import Recipe, Subject
from mha_lint.targets.timelimit import TimeLimitError, time_limit

if TYPE_CHECKING:
    from mha_lint.targets.make import FileMaker


MOST_TRIES = 28
MOST_FAILURES = 2
"""So often may a call fail with equal sizes told apart before they are left equal."""
SECONDS = 5.0


class Ties(enum.IntEnum):
    """Which sizes that are equal stay equal, the freest first."""

    NONE = 0
    QUERIES_AND_KEYS = 1
    ALL = 2


def resized(maker: FileMaker, subject: Subject) -> Iterator[Subject]:
    """Yield `subject` at other sizes that run, the most thorough change first.

    Sizes that are equal by chance change apart where the call still runs then.
    """
    expression = build_expression(subject)
    now = read_sizes(subject, expression)
    seen: set[tuple[str, str]] = {(subject.build, subject.call)}
    failures = dict.fromkeys(Ties, 0)
    tries = 0
    wanted = itertools.islice(changes(now), 3 * MOST_TRIES)
    for change, ties in itertools.product(wanted, Ties):
        if tries >= MOST_TRIES:
            return
        if ties is not Ties.ALL and failures[ties] >= MOST_FAILURES:
            continue
        recipe = _recipe(subject, expression, now, change, ties)
        if recipe is None or (recipe.build, recipe.call) in seen:
            continue
        seen.add((recipe.build, recipe.call))
        tries += 1
        try:
            with time_limit(SECONDS):
                made = maker.make(recipe)
        except TimeLimitError:
            return
        except Exception:  # sizes that the user's code does not take
            failures[ties] += 1
            continue
        yield made


def _recipe(
    subject: Subject, expression: BuildExpression, now: Sizes, change: Change, ties: Ties
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
    new_kv = kv_heads_for(now, change.heads)
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
    untied = ties is not Ties.ALL
    batch = 0 if now.batch in now.lengths and not untied else now.batch
    keys = of_keys(now, change, new_head_dim) if ties is Ties.NONE else {}
    sizes = NewSizes(widths, heads, lengths, halves, batch, untied, keys)
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
