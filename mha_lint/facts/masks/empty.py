"""Queries that no key is left for."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.levels import HIDES
from mha_lint.facts.masks.overflow import outputs_hold_nan
from mha_lint.facts.masks.pairs import Places, places_of
from mha_lint.facts.masks.played import recorded_call
from mha_lint.facts.masks.scene import Scene
from mha_lint.facts.masks.upstream import first_scores
from mha_lint.facts.places import span_of
from mha_lint.model.facts import Kind
from mha_lint.model.mask_facts import EmptyRows
from mha_lint.sites.site import Site

SAME = 1e-9


def empty_rows(scene: Scene, *, guessed: bool) -> EmptyRows | None:
    """Return the rows of the recorded call that no key is left for, and that somebody needs.

    Judged on the call's own masks. A row of a padded query, one whose position no query may see
    either, harms nobody unless it is NaN. ``guessed``: masks of arguments are not the user's.
    """
    bench, site = scene.bench, scene.site
    joins = [j for j in scene.joins if j.step.before and not j.step.inside]
    if guessed and any(bench.dependence.inputs_of(s) for j in joins for s in j.step.sides):
        return None
    replay = recorded_call(bench)
    logits = site.normaliser.logits
    first = first_scores(bench, site)
    level = replay.base(logits)
    if first is not logits:
        at = replay.base(first)
        zeros = _without_product(bench, site, first, at)
        (level,) = replay.run([logits], {first: zeros})
    levels = scene.pairs.table(logits, level)
    native = scene.pairs.table(site.weights, bench.recording.values[site.weights])
    if levels is None or native is None:
        return None
    # A sink, or a key that is always there, stands beside the keys of the scores.
    beside = scene.pairs.by_row(level) if level.numel() != levels.numel() else levels
    if beside is None:
        return None
    hidden = levels <= -HIDES
    for join in scene.joins:
        if join.step.inside and not scene.run.given:
            hidden = hidden | (join.gain == 0)
    full = hidden.all(-1) & ((beside <= -HIDES).all(-1) | (hidden & (levels > -HIDES)).any(-1))
    if not bool(full.any()) or _is_triangle(hidden):
        return None
    undefined = full & native.isnan().any(-1)
    held = places_of(scene.pairs)
    whole = _whole_samples(scene, held, full)
    if bool(undefined.any()):
        if not outputs_hold_nan(bench):
            return None
        return _found(scene, held, undefined, levels, whole, nan=True)
    attends = full & (native != 0).any(-1)
    needed = attends & (whole | _seen_as_keys(site, held, hidden, full))
    if not bool(needed.any()) or not _reaches(scene, needed):
        return None
    return _found(scene, held, needed, levels, whole, nan=False)


def _is_triangle(hidden: Tensor) -> bool:
    """Return whether the same triangle is hidden everywhere: what is wrong then is where it lies."""
    keys = hidden.shape[-1]
    first = hidden[:keys]
    if hidden.shape[0] % keys or not bool((hidden.reshape(-1, keys, keys) == first).all()):
        return False
    ones = torch.ones(keys, keys, dtype=torch.bool)
    return any(
        torch.equal(first, triangle(ones, diagonal=shift))
        for triangle in (torch.triu, torch.tril)
        for shift in range(1 - keys, keys)
    )


def _without_product(bench: Bench, site: Site, first: Node, at: Tensor) -> Tensor:
    score = site.score
    if score is None or first is not score.node:
        return torch.zeros_like(at)
    replay = recorded_call(bench)
    left = torch.zeros_like(replay.base(score.left))
    return torch.as_tensor(replay.run([score.node], {score.left: left})[0])


def _whole_samples(scene: Scene, held: Places | None, full: Tensor) -> Tensor:
    """Return the rows (R,) of samples of which no query has a key left, for cross-attention.

    In self-attention such a sample is nothing but padding.
    """
    if scene.site.kind is Kind.SELF:
        return torch.zeros_like(full)
    if held is None:
        return full & full.all()
    whole = torch.ones(int(held.samples.max()) + 1, dtype=torch.bool)
    whole[held.samples[~full]] = False
    return full & whole[held.samples]


def _seen_as_keys(site: Site, held: Places | None, hidden: Tensor, full: Tensor) -> Tensor:
    """Return the full rows (R,) whose own position some other query of the sample may see."""
    out = torch.zeros_like(full)
    if site.kind is not Kind.SELF or held is None:
        return out
    for row in full.nonzero().flatten().tolist():
        position = int(held.queries[row])
        same = (held.samples == held.samples[row]).unsqueeze(-1)
        seen = ~hidden & same & (held.keys == position)
        out[row] = position >= 0 and bool(seen.any())
    return out


def _reaches(scene: Scene, rows: Tensor) -> bool:
    """Return whether an output changes when `rows` of the weights are taken away."""
    bench, site = scene.bench, scene.site
    replay = recorded_call(bench)
    at = replay.base(site.weights)
    mask = rows.unsqueeze(-1).expand(-1, scene.pairs.keys)
    spread = _like_node(scene, mask)
    if spread is None:
        return True
    outputs = [n for n in bench.recording.outputs if bench.recording.values[n].is_floating_point()]
    less = torch.where(spread.reshape(at.shape), torch.zeros_like(at), at)
    after = replay.run(outputs, {site.weights: less})
    return any(
        bool(((a - replay.base(n)).abs() > SAME).any()) for n, a in zip(outputs, after, strict=True)
    )


def _like_node(scene: Scene, table: Tensor) -> Tensor | None:
    """Return a table (R, K) laid out as the operand that meets V."""
    value = scene.bench.replay.base(scene.site.weights)
    numbers = torch.arange(value.numel())
    places = scene.pairs.table(scene.site.weights, numbers.reshape(value.shape))
    if places is None:
        return None
    out = torch.zeros(value.numel(), dtype=table.dtype)
    out[places.reshape(-1)] = table.reshape(-1)
    return out


def _found(
    scene: Scene, held: Places | None, rows: Tensor, levels: Tensor, whole: Tensor, *, nan: bool
) -> EmptyRows:
    joins = [j for j in scene.joins if j.step.before and not j.step.inside]
    last = joins[-1].step.place if joins else scene.site.normaliser.logits
    first = int(rows.nonzero()[0, 0])
    example = f"row {first}"
    if held is not None and int(held.queries[first]) >= 0:
        example = f"query {int(held.queries[first])} of sample {int(held.samples[first])}"
    return EmptyRows(
        span_of(last),
        int(rows.sum()),
        rows.numel(),
        nan,
        bool((whole & rows).any()),
        float(levels[rows].max()),
        example,
    )
