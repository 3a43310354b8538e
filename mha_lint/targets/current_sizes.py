"""Read the sizes of a subject: width, heads, lengths and batch, off its expressions and tensors."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch

from mha_lint.targets.infer.vocabulary import Role
from mha_lint.targets.slots import BuildExpression
from mha_lint.targets.subject import Subject
from mha_lint.targets.tensors import tensors_in

STAYING = (
    None,
    Role.COUNT,
    Role.WINDOW,
    Role.PATCH,
    Role.CHUNK,
    Role.GROUPS,
    Role.VOCABULARY,
    Role.CLASSES,
)
"""Roles of numbers that a tensor may have an axis of, and that stay when sizes change."""


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
    fixed: frozenset[int] = frozenset()
    """Numbers of the construction that stay: of queries, of slots, of windows."""
    shared: tuple[int, ...] = ()
    """Lengths that several tensors of the call have: they may differ in another call."""

    @property
    def head_dim(self) -> int | None:
        """Return the head width that was given, else width / heads where it comes out even."""
        if self.own_head_dim is not None:
            return self.own_head_dim
        if self.width is None or not self.heads or self.width % self.heads:
            return None
        return self.width // self.heads


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
    batch, batch_axis = batch_of(tensors)
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
    sizes = Sizes(width, heads, kv_heads, tuple(sorted(lengths)), batch, own, grid)
    fixed = frozenset(
        s.value
        for s in expression.slots
        if s.role in STAYING or (s.role in (Role.LENGTH, Role.SOURCE) and s.value not in lengths)
    )
    return replace(sizes, fixed=fixed, shared=_shared(tensors, lengths))


def _shared(tensors: list[torch.Tensor], lengths: set[int]) -> tuple[int, ...]:
    """Return the lengths that more than one tensor of three or more axes has in front of its last."""
    whole = [t for t in tensors if t.dim() == 3 and t.is_floating_point()]
    return tuple(sorted(n for n in lengths if sum(n in t.shape[:2] for t in whole) > 1))


def batch_of(tensors: list[torch.Tensor]) -> tuple[int, int]:
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
