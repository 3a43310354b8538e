"""Masks of truth values that are used as numbers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.joins import handed_over
from mha_lint.facts.masks.origins import made_at, pattern_of
from mha_lint.facts.masks.roots import COMPARISONS
from mha_lint.facts.masks.scene import STRONG, Join, Scene, different, mixed
from mha_lint.facts.masks.steps import SAME
from mha_lint.facts.places import span_of
from mha_lint.model.mask_facts import MaskNumber
from mha_lint.sites.dependence import is_tensor, op, operands

FILLS = frozenset(["masked_fill", "setitem", "index_put", "fill", "index_fill"])

NEAR = 1e-6
"""A gain is measured by a small push, and not to the last digit."""
_TRUTHS = torch.tensor([0.0, 1.0], dtype=torch.float64)


def mask_numbers(scene: Scene, *, guessed: bool) -> tuple[MaskNumber, ...]:
    """Return the masks of `scene` that are added or multiplied as 0 and 1, or collapsed to True.

    Pairs that another step hides as well are no fault. ``guessed``: the masks of the call are not
    the user's, so that an argument that is added as it came says nothing.
    """
    found: dict[Node, MaskNumber] = {}
    for join in scene.joins:
        for node in collapsed(scene.bench, join.step.sides):
            # Read as truth values, those that were filled and no others may well be what is meant.
            values = scene.bench.recording.values[node]
            lost = join.step.how == "added" or bool((values == values.reshape(-1)[0]).all())
            if node not in found and lost:
                found[node] = _collapse(scene.bench, node)
    if found:
        return tuple(found.values())
    out: list[MaskNumber] = []
    for join in scene.joins:
        step = join.step
        if not step.before or step.inside or step.how == "filled":
            continue
        if guessed and all(_as_it_came(scene.bench, side) for side in step.sides):
            continue
        number = _added(scene, join) if step.how == "added" else _multiplied(scene, join)
        out += [number] if number is not None else []
    return tuple(out)


def collapsed(bench: Bench, sides: tuple[Node, ...]) -> list[Node]:
    """Return the bool tensors above `sides` that were filled with a number, which makes it True."""
    return [
        n
        for n in sorted(bench.dependence.ancestors(sides), key=bench.dependence.order.__getitem__)
        if op(n) in FILLS
        and is_tensor(bench.recording, n)
        and bench.recording.values[n].dtype == torch.bool
        and _filled_with(n) not in (None, 0, 1)
    ]


def _filled_with(node: Node) -> float | None:
    """Return the number that a fill writes, None where it writes a truth value or a tensor."""
    numbers = [
        v
        for v in (*node.args[-1:], *(node.kwargs.get(k) for k in ("value", "fill_value")))
        if isinstance(v, int | float) and not isinstance(v, bool)
    ]
    return float(numbers[0]) if numbers else None


def _collapse(bench: Bench, node: Node) -> MaskNumber:
    value = _filled_with(node)
    assert value is not None
    first = next(iter(operands(node)), node)
    return MaskNumber(span_of(node), made_at(bench, first), "collapsed", "bool", value, 1.0)


def _as_it_came(bench: Bench, side: Node) -> bool:
    """Return whether `side` is an argument after layout changes and casts to floats alone.

    What a comparison makes is 0 and 1 whatever came.
    """
    node = side
    while node.op == "call_function":
        if op(node) in COMPARISONS:
            return False
        value = bench.recording.values[node]
        above = [n for n in operands(node) if is_tensor(bench.recording, n)]
        if len(above) != 1 or value.numel() < bench.recording.values[above[0]].numel():
            return False
        if not torch.equal(
            different(value).double(), different(bench.recording.values[above[0]]).double()
        ):
            return False
        node = above[0]
    return node.op == "placeholder"


def _added(scene: Scene, join: Join) -> MaskNumber | None:
    offset = join.offset
    rows = mixed(offset.abs() > SAME)
    if not bool(rows.any()) or not bool(((join.gain - 1).abs() < NEAR).all()):
        return None
    seen = different(offset[rows])
    if seen.numel() != 2 or bool((seen.abs().sort().values - _TRUTHS).abs().max() > SAME):
        return None
    if not _holds_truths(scene.bench, join):
        return None
    return _judged(scene, join, offset.abs() > SAME, "added", float(seen[seen.abs() > SAME][0]))


def _multiplied(scene: Scene, join: Join) -> MaskNumber | None:
    sides = [scene.run.base(s) for s in join.step.sides]
    values = different(torch.cat([torch.as_tensor(s).double().reshape(-1) for s in sides]))
    if values.numel() < 2 or values.numel() > 3:
        return None
    strong = values[values.abs() >= STRONG]
    if strong.numel():
        marks = (join.gain.abs() >= STRONG) | join.offset.isnan()
        return _judged(scene, join, marks, "multiplied", float(strong[0]), always=True)
    if not torch.equal(values, _TRUTHS):
        return None
    return _judged(scene, join, join.gain == 0, "multiplied", 0.0)


def _holds_truths(bench: Bench, join: Join) -> bool:
    """Return whether what is added is made of truth values or whole numbers, or is nothing but 0 and 1."""
    for side in join.step.sides:
        value = bench.recording.values[side]
        if not value.is_floating_point():
            return True
        if bool(((value == 0) | (value.abs() == 1)).all()):
            return True
    return False


def _judged(
    scene: Scene, join: Join, marks: Tensor, how: str, value: float, *, always: bool = False
) -> MaskNumber | None:
    """Return the mask unless in the end all pairs on one of its sides are hidden."""
    rows = mixed(marks)
    if not bool(rows.any()):
        return None
    hidden = scene.hidden()
    rows = rows & ~hidden.all(-1)
    inside, outside = marks[rows], ~marks[rows]
    if not always and (bool(hidden[rows][inside].all()) or bool(hidden[rows][outside].all())):
        return None
    if always and bool(hidden[rows][inside].all()):
        return None
    final = scene.final.abs().nan_to_num()[rows]
    one = torch.where(inside, final, torch.zeros_like(final)).amax(-1)
    other = torch.where(outside, final, torch.zeros_like(final)).amax(-1)
    ratio = torch.minimum(one, other) / torch.maximum(one, other).clamp(min=1e-300)
    step = join.step
    side = step.sides[0]
    dtype = str(scene.bench.recording.values[side].dtype).removeprefix("torch.")
    made = made_at(scene.bench, side)
    handed = how == "added" and made is not None and _is_handed_over(scene.bench, side, step.place)
    return MaskNumber(
        made if handed else span_of(step.place),
        made,
        how,
        dtype,
        value,
        float(ratio.max()) if ratio.numel() else 0.0,
    )


def _is_handed_over(bench: Bench, side: Node, place: Node) -> bool:
    """Return whether 0 and 1 were made as floats in another class than adds them, as floats are.

    Then it is the maker who is at fault: floating masks are added by convention.
    """
    pattern = pattern_of(bench, side)
    path = {pattern, side, *bench.dependence.between(pattern, side)}
    made = [n for n in path if is_tensor(bench.recording, n) and handed_over(n, place)]
    last = max(made, key=bench.dependence.order.__getitem__, default=None)
    return last is not None and bench.recording.values[last].is_floating_point()
