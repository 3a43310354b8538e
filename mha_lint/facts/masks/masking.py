"""Where masks act at one site, how, and with which numbers."""

from __future__ import annotations

from typing import TypeVar

import torch

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.empty import empty_rows
from mha_lint.facts.masks.late import late_masks
from mha_lint.facts.masks.numbers import mask_numbers
from mha_lint.facts.masks.origins import buffers_of, fill_at, inputs_of, made_at
from mha_lint.facts.masks.overflow import mask_overflow
from mha_lint.facts.masks.scene import Join, Scene, different, mask_steps, scene_of
from mha_lint.facts.masks.strength import squashed_masks, weak_fills
from mha_lint.facts.places import span_of
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable, Unknown
from mha_lint.model.mask_facts import Masking, MaskStep
from mha_lint.sites.site import Site

T = TypeVar("T")
MOST = 8
"""Heads of a loop that are looked at: what masks do is the same in all of them as a rule."""


@unless_data_decides
def measure_masking(bench: Bench, site: Site, *, guessed: bool) -> Fact[Masking]:
    """Return how the masks of `site` act on its scores and weights.

    ``guessed``: the arguments of the call were made up, so that masks among them hide what nobody
    asked for.
    """
    if site.kind in (Kind.LINEAR, Kind.CHANNEL):
        return NotApplicable(f"{site.kind} attention has no scores of queries and keys")
    members = [m for m in site.all[:MOST] if mask_steps(bench, m)]
    if not members:
        return NotApplicable("no mask is joined to the scores or the weights")
    found = [s for m in members if (s := scene_of(bench, m)) is not None and s.joins]
    if not found:
        return Unknown("which query and key the elements of the masked scores hold is not known")
    return Known(
        Masking(
            steps=_once([x for s in found for x in _steps(s)]),
            late=_once([x for s in found for x in late_masks(s)]),
            numbers=_once([x for s in found for x in mask_numbers(s, guessed=guessed)]),
            weak=_once([x for s in found for x in weak_fills(s)]),
            overflow=next((o for s in found if (o := mask_overflow(s)) is not None), None),
            empty=next((e for s in found if (e := empty_rows(s, guessed=guessed))), None),
            squashed=_once([x for s in found for x in squashed_masks(s)]),
        ),
        "each mask was replayed with the scores at 0 and moved, and the weights compared",
    )


def _once(found: list[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(found))


def _steps(scene: Scene) -> list[MaskStep]:
    return [_step(scene, join) for join in scene.joins]


def _step(scene: Scene, join: Join) -> MaskStep:
    step, bench = join.step, scene.bench
    values = bench.recording.values
    marked = join.offset[join.marks] if step.how != "multiplied" else join.gain[join.marks]
    numbers = different(marked)
    fill = float(numbers[0]) if numbers.numel() == 1 and not numbers.isnan().any() else None
    side = max(step.sides, key=lambda n: values[n].numel(), default=None)
    return MaskStep(
        on="scores" if step.before else "weights",
        how=step.how,
        fill=fill,
        dtype=_type(values[step.node].dtype),
        mask_dtype=_type(values[side].dtype) if side is not None else "",
        shape=tuple(values[side].shape) if side is not None else (),
        inputs=inputs_of(bench, step.sides),
        buffers=buffers_of(bench, step.sides),
        applied=span_of(step.place),
        made=made_at(bench, side) if side is not None else None,
        fill_at=fill_at(bench, step.node, step.sides, fill) if fill is not None else None,
        hides=float(join.marks.double().mean()),
    )


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
