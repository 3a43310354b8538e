"""Make the user's own example small enough to measure: two layers, a short sequence, a narrow width.

Only sizes that the user's code shows are changed this way, never those stated by --build.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import torch
from torch import nn

from mha_lint.targets.current_sizes import Sizes, build_expression, read_sizes
from mha_lint.targets.infer.vocabulary import Role
from mha_lint.targets.rescale import NewSizes, rescale_call
from mha_lint.targets.slots import BuildExpression, Slot
from mha_lint.targets.subject import Recipe, Subject
from mha_lint.targets.tensors import tensors_in

if TYPE_CHECKING:
    from mha_lint.targets.make import FileMaker

MOST_PARAMETERS = 4_000_000
MOST_ELEMENTS = 400_000
MOST_SCORES = 8_000_000
LAYERS = 2
VOCABULARY = 101
BATCH = 3
SIDE = 32
"""An image of up to this height is small."""
PATCHES = (4, 8)
"""Patches along a side of a smaller image."""


def is_heavy(subject: Subject) -> bool:
    """Tell whether hundreds of replays of `subject` would take too long."""
    tensors = list(tensors_in([*subject.args, *subject.kwargs.values()]))
    elements = sum(t.numel() for t in tensors)
    heads = max((v for n, v in subject.sizes.items() if "head" in n.lower()), default=1)
    scores = max((_scores(t) for t in tensors), default=0) * min(heads, 64)
    return is_larger(subject, MOST_PARAMETERS) or elements > MOST_ELEMENTS or scores > MOST_SCORES


def is_larger(subject: Subject, most: int) -> bool:
    """Return whether the module of `subject` has more than `most` parameters."""
    module = subject.module
    return isinstance(module, nn.Module) and sum(p.numel() for p in module.parameters()) > most


def shrunk(maker: FileMaker, subject: Subject) -> Subject:
    """Return `subject` at smaller sizes where these run, else itself."""
    for recipe in _recipes(subject):
        if recipe == subject.recipe:
            continue
        try:
            small = maker.evaluate(recipe)
        except Exception:  # sizes that the user's code does not take
            continue
        small.notes += (f"made smaller than in {subject.build} for measuring",)
        small.other_calls = ()
        return small
    return subject


def _scores(tensor: torch.Tensor) -> int:
    if tensor.dim() < 2:
        return 0
    length = tensor.shape[1] if tensor.dim() <= 3 else tensor.shape[-2]
    if tensor.dim() == 4:
        length = max(length, tensor.shape[2] * tensor.shape[3] if tensor.shape[3] < 512 else 0)
    return int(tensor.shape[0] * length * length)


def _recipes(subject: Subject) -> Iterator[Recipe]:
    """Yield smaller recipes, the smallest first."""
    expression = build_expression(subject)
    now = read_sizes(subject, expression)
    narrow = [f for f in _factors(now) if f < 1]
    for sides in _sides(expression):
        short = {n: new for n, new in _short(now).items() if n not in sides}
        for factor, shorter in itertools.product([*narrow, Fraction(1)], (short, {})):
            lengths = {**shorter, **sides}
            values = {
                slot: new
                for slot in expression.slots
                if (new := _smaller(slot, factor, lengths)) != slot.value
            }
            if any(new < 1 for new in values.values()):
                continue
            widths = {
                s.value: v for s, v in values.items() if s.role in (Role.WIDTH, Role.HEAD_DIM)
            }
            if now.head_dim is not None and (now.head_dim * factor).denominator == 1:
                widths.setdefault(now.head_dim, int(now.head_dim * factor))
            vocabulary = {s.value: v for s, v in values.items() if s.role is Role.VOCABULARY}
            sizes = NewSizes(widths=widths, lengths=lengths, batch=now.batch)
            call = rescale_call(_cut_ids(subject.call, vocabulary), sizes)
            call = _smaller_batch(call, now.batch)
            yield Recipe(expression.with_values(values), call, subject.recipe.how)
    yield from _only_smaller_images(subject, expression, now)


def _only_smaller_images(
    subject: Subject, expression: BuildExpression, now: Sizes
) -> Iterator[Recipe]:
    """Yield recipes that change nothing else: layers may be named by number."""
    for sides in _sides(expression):
        values = {
            s: sides[s.value] for s in expression.slots if s.value in sides and s.role is Role.SIDE
        }
        call = rescale_call(subject.call, NewSizes(lengths=sides, batch=now.batch))
        yield Recipe(expression.with_values(values), call, subject.recipe.how)


def _sides(expression: BuildExpression) -> Iterator[dict[int, int]]:
    """Yield smaller sides of images, a few patches long, and none at last."""
    images = [s.value for s in expression.slots if s.role is Role.SIDE and s.value > SIDE]
    patches = [s.value for s in expression.slots if "patch" in s.name and s.value > 1]
    for count in PATCHES if images else ():
        found = {}
        for side in images:
            step = math.lcm(*(p for p in patches if side % p == 0))
            smaller = count * step if step > 1 else SIDE
            if smaller < side:
                found[side] = smaller
        if found:
            yield found
    yield {}


def _factors(now: Sizes) -> list[Fraction]:
    """Return factors for all widths that leave a head_dim of at least 8."""
    if now.head_dim is None:
        return [Fraction(1, n) for n in (8, 4, 2)] if now.width else []
    return [
        Fraction(1, n) for n in (16, 8, 4, 2) if now.head_dim % n == 0 and now.head_dim // n >= 8
    ]


def _short(now: Sizes) -> dict[int, int]:
    """Return shorter lengths, unequal ones unequal again."""
    long = [n for n in now.lengths if n > 24]
    return {n: 16 + 3 * index for index, n in enumerate(long)}


def _smaller(slot: Slot, factor: Fraction, lengths: dict[int, int]) -> int:
    match slot.role:
        case Role.WIDTH | Role.INNER | Role.HEAD_DIM:
            product = slot.value * factor
            return int(product) if product.denominator == 1 else slot.value
        case Role.LAYERS:
            return min(slot.value, LAYERS)
        case Role.VOCABULARY:
            return min(slot.value, VOCABULARY)
        case Role.LENGTH | Role.SOURCE | Role.SIDE:
            return lengths.get(slot.value, slot.value)
        case _:
            return slot.value


def _cut_ids(call: str, vocabulary: dict[int, int]) -> str:
    """Keep token ids below the smaller vocabulary."""
    for old, new in vocabulary.items():
        call = call.replace(f"randint(0, {old},", f"randint(0, {new},")
        call = call.replace(f"randint({old},", f"randint({new},")
    return call


def _smaller_batch(call: str, batch: int) -> str:
    return call.replace(f"({batch}, ", f"({BATCH}, ") if batch > BATCH else call
