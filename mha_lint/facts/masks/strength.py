"""How much of a hidden pair's weight is left: fills that are too weak, or are squashed later."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.masks.origins import fill_at
from mha_lint.facts.masks.played import LOUD, Played, recorded_call
from mha_lint.facts.masks.scene import HIDDEN, STRONG, Join, Scene, different, mixed
from mha_lint.facts.places import span_of
from mha_lint.model.mask_facts import Squashed, WeakFill
from mha_lint.sites.dependence import is_number

CUSTOMARY = -100.0
"""Fills from here on downwards are in use in published code, and hide wherever scores are scaled."""
BIAS = (-5.0, -1e-2)
"""What is added between these may be meant as a preference."""
NEAR = 1e-3
"""A gain is measured by a small push beside what is added, and not to the last digit."""
LEVELS = 4
"""As many different numbers may be added where several masks are joined; a bias has more."""
BOUND = -500.0
"""A bounded map leaves a hidden pair above this."""
SATURATED = 0.1
"""A bounded map answers to twice the input with less than this share more."""


def weak_fills(scene: Scene) -> tuple[WeakFill, ...]:
    """Return the fills of `scene` that leave a hidden pair some weight, those squashed later aside."""
    found: list[WeakFill] = []
    squashed = {join.step.node for join in scene.joins if _squashed(scene, join) is not None}
    for join in scene.joins:
        if not join.step.before or join.step.inside or join.step.how == "multiplied":
            continue
        read = _filled(join) if join.step.how == "filled" else _added(scene, join)
        if read is None:
            continue
        marks, fill = read
        marks = marks & (scene.visible() & ~marks).any(-1, keepdim=True)
        kept = min(kept_share(scene.final, marks), _left(scene, scene.run, marks))
        loud = kept
        if kept <= HIDDEN and fill > CUSTOMARY:
            run = Played(scene.bench, recorded_call(scene.bench, LOUD), scene.run.given)
            final = scene.pairs.table(
                scene.site.weights, torch.as_tensor(run.base(scene.site.weights))
            )
            if final is not None:
                loud = min(kept_share(final, marks), _left(scene, run, marks))
        level, lowest = _levels(scene, marks)
        weak = max(kept, loud) > HIDDEN or level > lowest
        if not weak or join.step.node in squashed:
            continue
        step = join.step
        place = fill_at(scene.bench, step.node, step.sides, fill)
        at = span_of(step.place)
        found.append(WeakFill(place or at, at, step.how, fill, kept, loud, level, lowest))
    return tuple(found)


def _left(scene: Scene, run: Played, marks: Tensor) -> float:
    """Return what a softmax leaves to marked pairs: what joins the weights behind it is no score."""
    node = scene.site.normaliser.weights
    if scene.site.normaliser.element not in ("softmax", "coupled"):
        return torch.inf
    own = scene.pairs.table(node, torch.as_tensor(run.base(node)))
    return torch.inf if own is None else kept_share(own, marks)


def _levels(scene: Scene, marks: Tensor) -> tuple[float, float]:
    """Return the highest number that a marked pair has at the normaliser, and the lowest visible one."""
    logits = scene.site.normaliser.logits
    values = scene.pairs.table(logits, torch.as_tensor(scene.run.base(logits)))
    rows = marks.any(-1)
    seen = (scene.visible() & ~marks)[rows]
    exponential = scene.site.normaliser.element == "softmax"
    if values is None or not exponential or not bool(rows.any()) or not bool(seen.any()):
        return -torch.inf, -torch.inf
    values = values[rows]
    return float(values[marks[rows]].max()), float(values[seen].min())


def kept_share(final: Tensor, marks: Tensor) -> float:
    """Return the largest weight of a marked pair beside the largest one of the others in its row."""
    size = final.abs().nan_to_num()
    rows = mixed(marks)
    inside = torch.where(marks, size, torch.zeros_like(size)).amax(-1)[rows]
    outside = torch.where(marks, torch.zeros_like(size), size).amax(-1)[rows]
    known = outside + inside > 0
    share = inside[known] / outside[known].clamp(min=1e-300)
    return float(share.max()) if share.numel() else 0.0


def _filled(join: Join) -> tuple[Tensor, float] | None:
    """Return the filled pairs and the number, None where rows are filled as a whole or with data."""
    marks = join.gain == 0
    rows = mixed(marks)
    values = different(join.offset[rows][marks[rows]])
    if values.numel() != 1:
        return None
    return marks & rows.unsqueeze(-1), float(values[0])


def _added(scene: Scene, join: Join) -> tuple[Tensor, float] | None:
    """Return the pairs that get less than others of their row, and how much less at least."""
    if not _from_truths(scene, join):
        return None
    offset = join.offset.nan_to_num(nan=0.0)
    below = offset - offset.amax(-1, keepdim=True)
    marks = below < 0
    rows = mixed(marks)
    values = different(below[rows][marks[rows]])
    if (
        not values.numel()
        or values.numel() > LEVELS
        or not bool(((join.gain[~marks] - 1).abs() < NEAR).all())
    ):
        return None
    fill = float(values.max())
    return None if BIAS[0] < fill < BIAS[1] or fill == -1 else (marks & rows.unsqueeze(-1), fill)


def _from_truths(scene: Scene, join: Join) -> bool:
    """Return whether what is added was made from truth values or from 0 and 1."""
    values = scene.bench.recording.values
    for node in scene.bench.dependence.ancestors(join.step.sides):
        value = values.get(node)
        if isinstance(value, torch.Tensor) and value.numel() > 1:
            if value.dtype == torch.bool:
                return True
            if bool(((value == 0) | (value == 1)).all()) and bool(
                (value != value.reshape(-1)[0]).any()
            ):
                return True
    return False


def squashed_masks(scene: Scene) -> tuple[Squashed, ...]:
    """Return the bounded maps of `scene` that bring back what a mask has hidden."""
    found: dict[Node, Squashed] = {}
    logits = scene.site.normaliser.logits
    for join in scene.joins:
        node = join.step.node
        if not join.step.before or join.step.inside or node is logits:
            continue
        squashed = _squashed(scene, join)
        if squashed is not None and not _fills_over(scene, squashed[0], join):
            found.setdefault(squashed[0], squashed[1])
    return tuple(found.values())


def _fills_over(scene: Scene, node: Node, join: Join) -> bool:
    """Return whether `node` is a later mask that fills some of what `join` hides: no map of scores."""
    later = (j for j in scene.joins if j.step.node is node)
    return any(bool((j.marks & join.marks).any()) for j in later)


def _squashed(scene: Scene, join: Join) -> tuple[Node, Squashed] | None:
    node, logits = join.step.node, scene.site.normaliser.logits
    run = scene.run
    value = torch.as_tensor(run.base(node))
    here, there = scene.pairs.table(node, value), scene.pairs.table(logits, run.base(logits))
    if here is None or there is None:
        return None
    strong = (here <= -STRONG) & join.marks
    back = strong & scene.visible().any(-1, keepdim=True) & (there > BOUND)
    if not bool(back.any()):
        return None
    more = torch.where(value <= -STRONG, 2 * value, value)
    twice = scene.table(logits, {node: more})
    if twice is None or not bool(
        ((twice - there).abs() <= SATURATED * there.abs() + 1e-9)[back].all()
    ):
        return None
    if float(kept_share(scene.final, back)) == 0.0:
        return None  # another mask hides them in the end
    path = [
        n
        for n in scene.bench.dependence.between(node, logits)
        if is_number(scene.bench.recording, n)
    ]
    for one in path:
        table = scene.pairs.table(one, run.base(one))
        if table is not None and bool((table[back] > BOUND).any()):
            squashed = Squashed(
                span_of(one),
                span_of(join.step.place),
                float(here[back].max()),
                float(there[back].max()),
                kept_share(scene.final, back),
            )
            return one, squashed
    return None
