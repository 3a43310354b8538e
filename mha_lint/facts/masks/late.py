"""Masks behind the normaliser."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.masks.origins import made_at
from mha_lint.facts.masks.scene import HIDDEN, STRONG, Join, Scene, mixed
from mha_lint.facts.places import span_of
from mha_lint.model.mask_facts import LateMask
from mha_lint.sites.dependence import is_number
from mha_lint.sites.normaliser import coupled_axes

SAME = 1e-6
"""Relative: sums of weights that differ by less are equal."""
BEHIND = 12
"""Nodes behind the product with V at which the sum of the weights may be divided out."""


def late_masks(scene: Scene) -> tuple[LateMask, ...]:
    """Return the masks of `scene` that take weights away which are not made up for.

    Rows that are taken away as a whole, and pairs that the scores hide as well, are no fault.
    """
    if scene.site.normaliser.element not in ("softmax", "coupled"):
        return ()  # nothing is normalised: a weight of 0 is what a mask should leave
    if scene.site.score is None and not _over_keys(scene):
        return ()  # each key is dealt to clusters: its shares sum to 1, those of a cluster need not
    found: list[LateMask] = []
    for join in scene.joins:
        if join.step.before and not join.step.inside:
            continue
        late = _late(scene, join)
        if late is not None:
            found.append(late)
    return tuple(found)


def _over_keys(scene: Scene) -> bool:
    """Return whether the normaliser runs along the keys that are summed with V."""
    normaliser = scene.site.normaliser
    coupled = coupled_axes(scene.bench.replay, normaliser.logits, normaliser.weights)
    return not coupled or bool(coupled & set(scene.site.key_axes))


def _late(scene: Scene, join: Join) -> LateMask | None:
    marks, before = _taken(join), join.before
    if marks is None:
        return None
    size = before.abs().nan_to_num().amax(-1, keepdim=True)
    seen = before.abs() > HIDDEN * size
    lost = marks & seen & (~marks & seen).any(-1, keepdim=True)
    lost &= torch.isfinite(before).all(-1, keepdim=True)  # no weights, no sum of them
    rows = lost.any(-1)
    if not bool(rows.any()):
        return None
    step, site = join.step, scene.site
    neutral = scene.run.base(step.data).reshape(scene.run.base(step.node).shape)
    without = scene.table(site.weights, {step.node: neutral})
    if without is None:
        return None
    now, then = scene.final.sum(-1)[rows], without.sum(-1)[rows]
    if bool((then > 1 + SAME).any()) or not bool(torch.isfinite(then).all()):
        return None  # not normalised over the keys
    if bool(((now - then).abs() <= SAME * then.abs()).all()) or _made_up_later(scene, step.node):
        return None
    values = join.offset[lost]
    return LateMask(
        span_of(step.place),
        made_at(scene.bench, step.sides[0]) if step.sides else None,
        float(values[0]),
        int(lost.sum()),
        lost.numel(),
        (float(now.min()), float(now.max())),
        float(then.max()),
    )


def _taken(join: Join) -> Tensor | None:
    """Return the pairs that a step takes away, None where it is no mask but a factor or a bias."""
    if join.step.how == "added":
        return join.offset.isnan() | (join.offset <= -STRONG)
    kept = join.gain[join.gain != 0]
    if kept.numel() and bool((kept - kept[0]).abs().max() > SAME * kept[0].abs()):
        return None  # factors that depend on the position: a design
    marks = join.gain == 0
    return marks if bool(mixed(marks).any()) else None


def _made_up_later(scene: Scene, node: Node) -> bool:
    """Return whether the result no longer grows with the weights: their sum is divided out."""
    run, dependence = scene.run, scene.bench.dependence
    sources = scene.bench.finder.sources
    context = scene.site.context
    chain: list[Node] = []
    front = [context]
    while front and len(chain) < BEHIND:
        one = front.pop(0)
        for user in dependence.users(one):
            if user in chain or sources.contraction(user) is not None:
                continue
            if is_number(scene.bench.recording, user):
                chain.append(user)
                front.append(user)
    if not chain:
        return False
    twice = run.run(chain, {node: 2 * run.base(node)})
    return any(_equal(torch.as_tensor(v), run.base(n)) for n, v in zip(chain, twice, strict=True))


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or not bool(torch.isfinite(other).all()):
        return False
    return bool((one - other).abs().max() <= SAME * other.abs().max().clamp(min=1e-300))
