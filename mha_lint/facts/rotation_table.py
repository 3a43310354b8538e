"""Tables of cosines and sines that were made from angles in a half type before the call."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.places import span_of
from mha_lint.model.numeric_facts import RotationLoss
from mha_lint.model.source import Span

UNIT = 0.03
"""How far cos^2 + sin^2 may lie from 1: bfloat16 rounds both to 0.004."""
FAST = (0.05, 0.99)
"""Frequencies that are looked at: slower ones lose less, and 1 loses nothing."""
COLUMNS = 4
FEWEST = 32
"""Positions that a table must have: over fewer nothing is lost."""
TRIED = 64
"""Numbers of the half type around the first angle that may be the frequency."""


def table_losses(bench: Bench, region: set[Node]) -> list[RotationLoss]:
    """Return what the tables of angles among the constants in `region` have lost."""
    held = [
        n
        for n in region
        if n.op == "get_attr" and isinstance(bench.recording.values[n], Tensor)
        and not n.meta.get("trainable")
    ]  # fmt: skip
    found: list[RotationLoss] = []
    for nodes, phases in _phases(bench, sorted(held, key=bench.dependence.order.__getitem__)):
        span = declared_constant(bench, nodes[0])
        own = bench.recording.values[nodes[0]].dtype
        for dtype in (torch.float16, torch.bfloat16):
            loss = _loss(phases, dtype, torch.finfo(own).eps, span)
            if loss is not None:
                found.append(loss)
    return found


def declared_constant(bench: Bench, node: Node) -> Span | None:
    """Return where the buffer that `node` holds is declared, else the line that reads it."""
    name = node.meta.get("buffer") or node.meta.get("parameter")
    declared = declared_at(bench.recording.module, str(name)) if name else None
    users = bench.dependence.users(node)
    return declared or (span_of(users[0]) if users else None)


def angle_table_loss(bench: Bench, node: Node) -> RotationLoss | None:
    """Return what a table of angles has lost that is itself kept in a half type.

    Its angles are multiples of the position but for the rounding of the type.
    """
    value = bench.recording.values[node]
    angles = _in_columns(value.double(), least=2)
    count = angles.shape[0]
    if count < 2:
        return None
    numbers = torch.arange(count, dtype=torch.float64)[:, None]
    step = torch.finfo(value.dtype).eps * float(angles.abs().max())
    gap = (angles - numbers * (angles[-1:] / (count - 1))).abs()
    if not 0 < float(gap.max()) <= 2 * step:
        return None
    name, cast = str(value.dtype).removeprefix("torch."), torch.finfo(value.dtype).eps / 2
    at = int(gap.amax(1).argmax())
    return RotationLoss(
        name, float(gap.max()), at, count, cast, True, declared_constant(bench, node)
    )


def _phases(bench: Bench, held: list[Node]) -> list[tuple[tuple[Node, ...], Tensor]]:
    """Return angles (positions, columns) in float64 of each pair of tables of cosines and sines."""
    values = bench.recording.values
    found: list[tuple[tuple[Node, ...], Tensor]] = []
    for node in held:
        value = values[node]
        if value.is_complex() and bool(((value.abs() - 1).abs() < UNIT).all()):
            found.append(((node,), _in_columns(value.angle().double())))
        elif value.dim() > 2 and value.shape[-1] == 2 and value.is_floating_point():
            found += _pair((node,), value[..., 0], value[..., 1])
    floats = [n for n in held if values[n].is_floating_point() and values[n].dim() > 1]
    for one, other in itertools.permutations(floats, 2):
        if values[one].shape == values[other].shape:
            found += _pair((one, other), values[one], values[other])
    return [(nodes, phases) for nodes, phases in found if phases.shape[0] >= FEWEST]


def _pair(
    nodes: tuple[Node, ...], cosine: Tensor, sine: Tensor
) -> list[tuple[tuple[Node, ...], Tensor]]:
    c, s = cosine.double(), sine.double()
    if not bool(((c.square() + s.square() - 1).abs() < UNIT).all()):
        return []
    return [(nodes, _in_columns(torch.atan2(s, c)))]


def _in_columns(phases: Tensor, least: int = FEWEST) -> Tensor:
    """Return (positions, columns), the axis of positions being the one that begins with zeros."""
    for axis in range(phases.dim()):
        if phases.shape[axis] >= least and not bool(phases.select(axis, 0).abs().max() > UNIT):
            return phases.movedim(axis, 0).flatten(1)
    return phases[:0].reshape(0, 1)


def _loss(
    phases: Tensor, dtype: torch.dtype, rounding: float, span: Span | None
) -> RotationLoss | None:
    """Return the loss if the angles are products that were rounded to `dtype`, else None.

    The product of a position and the frequency is rounded: no other reason, as frequencies that
    change or two axes in one, gives just these angles.
    """
    count = phases.shape[0]
    numbers = torch.arange(count, dtype=torch.float64)
    first = phases[1].abs()
    columns = ((first > FAST[0]) & (first < FAST[1])).nonzero().flatten()[:COLUMNS]
    eps = torch.finfo(dtype).eps
    worst: tuple[float, int] = (0.0, 0)
    for column in columns.tolist():
        sign = math.copysign(1.0, float(phases[1, column]))
        due = phases[:, column] * sign
        for frequency in _around(float(first[column]), dtype, max(eps, rounding)):
            product = numbers.to(dtype) * torch.tensor(frequency, dtype=dtype)
            rounded = product.double()
            gap = torch.remainder(rounded - due + math.pi, 2 * math.pi) - math.pi
            if bool((gap.abs() < 2 * max(eps, rounding)).all()):
                error = (rounded - numbers * frequency).abs()
                worst = max(worst, (float(error.max()), int(error.argmax())))
                break
    if not worst[0]:
        return None
    name = str(dtype).removeprefix("torch.")
    return RotationLoss(name, worst[0], worst[1], count, eps / 2, True, span)


def _around(value: float, dtype: torch.dtype, rounding: float) -> list[float]:
    """Return the numbers of `dtype` next to `value`, the nearest first."""
    step = torch.finfo(dtype).eps * 2 ** math.floor(math.log2(value))
    middle = round(value / step) * step
    reach = min(TRIED, math.ceil(3 * rounding / step))
    return [middle + i * step for i in sorted(range(-reach, reach + 1), key=abs)]
