"""Masks whose numbers leave the range of the type that the call runs in."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.played import recorded_call
from mha_lint.facts.masks.scene import Scene
from mha_lint.facts.places import span_of
from mha_lint.model.mask_facts import MaskOverflow
from mha_lint.sites.dependence import is_number, op, operands

NEAR = 0.25
"""A share of a type's range that no score reaches: two fills met there."""


def mask_overflow(scene: Scene) -> MaskOverflow | None:
    """Return the first place at which a mask of `scene` overflows in the recorded types.

    A fill that a score takes over the edge of the range is none: it hides as before.
    """
    bench = scene.bench
    order = bench.dependence.order
    steps = {j.step.node: j.step for j in scene.joins}
    sides = [s for j in scene.joins for s in j.step.sides]
    nodes = sorted({*bench.dependence.ancestors(sides), *steps}, key=order.__getitem__)
    for node in nodes:
        if not is_number(bench.recording, node) or node.op == "placeholder":
            continue
        found = _overflow(bench, node, joined=node in steps)
        if found is not None:
            kind, value, becomes = found
            return _consequence(scene, node, kind, value, becomes)
    return None


def _overflow(bench: Bench, node: Node, *, joined: bool) -> tuple[str, float, float] | None:
    """Return the kind of overflow at `node`, one number in float64 and what it becomes."""
    native = bench.recording.values[node]
    bad = ~torch.isfinite(native)
    if not bool(bad.any()):
        return None
    values = [
        bench.recording.values[n].broadcast_to(native.shape)
        for n in operands(node)
        if is_number(bench.recording, n) and _fits(bench.recording.values[n], native)
    ]
    if _zero_times_infinity(node, native, values):
        return "nan", 0.0, float("nan")
    exact = recorded_call(bench).base(node)
    if exact.shape != native.shape:
        return None
    bad = bad & torch.isfinite(exact)
    for one in values:
        bad = bad & torch.isfinite(one)
    if not bool(bad.any()):
        return None
    limit = NEAR * torch.finfo(native.dtype).max
    both = len(values) > 1 and bool(
        torch.stack([(v[bad].abs() > limit).all() for v in values]).all()
    )
    if joined and not both:
        return None
    return "sum" if both else "fill", float(exact[bad][0]), float(native[bad][0])


def _zero_times_infinity(node: Node, native: Tensor, values: list[Tensor]) -> bool:
    """Return whether `node` multiplies a 0 by infinity, a tensor's or a number."""
    numbers = [abs(float(n)) for n in node.args if isinstance(n, int | float)]
    if op(node) not in ("mul", "div") or not values:
        return False
    infinite = torch.full(native.shape, math.inf in numbers)
    nothing = torch.zeros(native.shape, dtype=torch.bool)
    for one in values:
        infinite = infinite | one.isinf()
        nothing = nothing | (one == 0)
    return bool((native.isnan() & infinite & nothing).any())


def _fits(value: Tensor, native: Tensor) -> bool:
    """Return whether `value` can be laid over `native` (torch's own test imports sympy)."""
    sizes = zip(reversed(value.shape), reversed(native.shape), strict=False)
    return value.dim() <= native.dim() and all(n in (1, m) for n, m in sizes)


def _consequence(
    scene: Scene, node: Node, kind: str, value: float, becomes: float
) -> MaskOverflow | None:
    recording, site = scene.bench.recording, scene.site
    native = scene.pairs.table(site.weights, recording.values[site.weights])
    if native is None:
        last = site.normaliser.weights
        native = scene.pairs.table(last, recording.values[last])
    if native is None:
        return None
    rows = native.isnan().any(-1)
    dtype = recording.values[node].dtype
    return MaskOverflow(
        span_of(node),
        kind,
        value,
        becomes,
        str(dtype).removeprefix("torch."),
        int(rows.sum()),
        rows.numel(),
        outputs_hold_nan(scene.bench),
    )


def outputs_hold_nan(bench: Bench) -> bool:
    """Return whether an output of the recorded call holds NaN."""
    values = [bench.recording.values[n] for n in bench.recording.outputs]
    return any(
        isinstance(v, torch.Tensor) and v.is_floating_point() and bool(v.isnan().any())
        for v in values
    )
