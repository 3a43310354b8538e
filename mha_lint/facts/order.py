"""One order for the tensors of a site: groups (samples and heads), queries, keys."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.facts.bench import Bench
from mha_lint.sites.origin import origin_of_weights
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct
from mha_lint.sites.unmasked import unmasked

SAME = 1e-13
"""A change below this is rounding."""


class NotArrangedError(Exception):
    """The site cannot be brought into the oracle's order; the text says why."""


class Values(Protocol):
    """What tells the value of a node: a replay, or values that were drawn for some nodes."""

    def base(self, node: Node) -> Any:
        """Return the value of `node`."""


@dataclass(slots=True)
class Order:
    """Where the oracle's order finds each element of a site's tensors.

    ``natural``: the flat score at each place of (G, T_q, T_k). ``logits`` and ``weights``:
    (G, T_q, T_k), the flat element of the normaliser's input, and of the operand that meets V, that
    came from each score.
    """

    natural: Tensor
    logits: Tensor
    weights: Tensor


_KNOWN: WeakKeyDictionary[Replay, dict[int, tuple[Site, Order]]] = WeakKeyDictionary()
"""Several facts ask for the order of one site, and it never changes. The site is kept with it, so that
no other one gets its id."""


def order_of(bench: Bench, site: Site) -> Order:
    """Return the oracle's order of axes for `site`; it depends on shapes alone.

    Raises:
        NotArrangedError: heads or positions are mixed on the way, so that there is no such order.
    """
    known = _KNOWN.setdefault(bench.replay, {})
    if id(site) not in known:
        known[id(site)] = site, _order(bench, site)
    return known[id(site)][1]


def _order(bench: Bench, site: Site) -> Order:
    if site.score is None or site.q is None or site.k is None or site.to_logits is None:
        raise NotArrangedError("the scores are no product of queries and keys")
    mixed = [a for a in site.group_axes if not site.to_logits.clean[a]]
    if mixed or not site.to_weights.all_clean or _mixed_later(bench, site):
        raise NotArrangedError("the heads are mixed between scores and weights")
    shape = tuple(bench.recording.values[site.scores].shape)
    order = (*site.group_axes, *site.row_axes, *site.key_axes)
    sizes = [
        math.prod(shape[a] for a in axes)
        for axes in (site.group_axes, site.row_axes, site.key_axes)
    ]
    canonical = torch.empty(math.prod(shape), dtype=torch.long)
    natural = torch.arange(math.prod(shape)).reshape(shape).permute(order).reshape(-1)
    canonical[natural] = torch.arange(math.prod(shape))
    logits = _inverse(bench.finder.unmasked_index(site), shape, canonical, sizes)
    try:
        weights = _inverse(site.origin, shape, canonical, sizes)
    except NotArrangedError:
        # Weights that were set to a number behind the normaliser tell nothing of where they are from.
        try:
            filled = origin_with_masked(bench, site)
            if filled is None:
                raise
            weights = _inverse(filled, shape, canonical, sizes)
        except NotArrangedError:
            if not _in_place(site):
                raise
            weights = logits
    return Order(natural, logits, weights)


def _in_place(site: Site) -> bool:
    """Return whether, as far as it is known, each weight stands where the normaliser has put it."""
    shape = site.to_weights.shape
    if tuple(site.to_weights.responds.shape) != shape:
        return False
    own = torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij")
    return all(
        bool(((i == o) | (i < 0)).all()) for i, o in zip(site.to_weights.index, own, strict=True)
    )


def origin_with_masked(bench: Bench, site: Site) -> tuple[Tensor, ...] | None:
    """Return which score each weight came from, those that were masked behind the normaliser too."""
    assert site.to_logits is not None
    normaliser = site.normaliser
    last = normaliser.later[-1] if normaliser.later else normaliser.weights
    laid = unmasked(bench.dependence, bench.replay, last, site.weights, site.to_weights)
    laid = replace(laid, responds=torch.ones_like(laid.responds))
    whole = replace(site.to_logits, index=bench.finder.unmasked_index(site))
    return origin_of_weights(bench.replay, normaliser, whole, laid)


def _mixed_later(bench: Bench, site: Site) -> bool:
    """Return whether one weight reaches those of several heads: by a mean that all of them get, say."""
    found, replay = site.normaliser, bench.replay
    if not found.later:
        return False
    at, before = replay.base(found.weights), replay.base(site.weights)
    spot = int(at.nan_to_num().argmax())
    moved_in = at.clone().reshape(-1)
    moved_in[spot] *= 0.5
    (after,) = replay.run([site.weights], {found.weights: moved_in.reshape(at.shape)})
    changed = (after - before).abs() > SAME
    return any(len(distinct(site.origin[a][changed])) > 1 for a in site.group_axes)


def score_operands(site: Site, values: Values) -> tuple[Tensor, Tensor]:
    """Return q (G, T_q, D) and k (G, T_k, D)."""
    return (
        _score_operand(site, values, left=not site.key_left, rows=site.row_axes),
        _score_operand(site, values, left=site.key_left, rows=site.key_axes),
    )


def _score_operand(site: Site, values: Values, *, left: bool, rows: tuple[int, ...]) -> Tensor:
    """Return q or k as (G, R, D)."""
    score = site.score
    assert score is not None
    node, labels = score.side(left)
    value = values.base(node)
    scores = values.base(site.scores)
    summed = [x for x in score.left_labels if x is not None and x in score.summed]
    wanted: list[int | None] = [score.out_labels[a] for a in (*site.group_axes, *rows)]
    sized = [scores.shape[a] for a in (*site.group_axes, *rows)]
    tensor: Tensor = value
    axes: list[int] = []
    shape: list[int] = []
    for label, n in zip(wanted, sized, strict=True):
        if label is not None and label in labels:
            axes.append(labels.index(label))
            shape.append(n)
        else:
            shape.append(1)
    features = [labels.index(x) for x in summed]
    rest = [a for a in range(value.dim()) if a not in axes and a not in features]
    tensor = tensor.permute(*axes, *features, *rest)
    for _ in rest:
        tensor = tensor.select(-1, 0)
    d = math.prod(value.shape[a] for a in features)
    tensor = tensor.reshape(*shape, d).expand(*sized, d)
    groups = math.prod(sized[: len(site.group_axes)])
    return tensor.reshape(groups, -1, d)


def value_side(site: Site, values: Values, order: Order) -> tuple[Tensor, Tensor]:
    """Return v (G, T_k, d_v) and context (G, T_q, d_v)."""
    weights, wlabels = site.value.side(site.weights_left)
    node, vlabels = site.value.side(not site.weights_left)
    shape = tuple(values.base(weights).shape)
    v = values.base(node)
    free = [
        i
        for i, x in enumerate(vlabels)
        if x is not None and x in site.value.free(not site.weights_left)
    ]
    out = values.base(site.context)
    out_free = [site.value.out_labels.index(vlabels[i]) for i in free]
    return (
        _gathered(v, vlabels, wlabels, order.weights[:, 0, :], shape, free),
        _gathered(out, site.value.out_labels, wlabels, order.weights[:, :, 0], shape, out_free),
    )


def _gathered(
    value: Tensor,
    labels: tuple[int | None, ...],
    wlabels: tuple[int | None, ...],
    flat: Tensor,
    shape: tuple[int, ...],
    free: list[int],
) -> Tensor:
    """Read `value` at the places of the weights `flat` (G, R), its `free` axes last."""
    unravelled: list[Tensor] = []
    rest = flat
    for n in reversed(shape):
        unravelled.append(rest % n)
        rest = rest // n
    unravelled.reverse()
    moved = value.permute(*[a for a in range(value.dim()) if a not in free], *free)
    at: list[Tensor] = []
    for axis, label in enumerate(labels):
        if axis in free:
            continue
        if label is not None and label in wlabels and value.shape[axis] > 1:
            at.append(unravelled[wlabels.index(label)])
        else:
            at.append(torch.zeros_like(flat))
    picked = moved[tuple(at)] if at else moved.expand(*flat.shape, *moved.shape)
    return picked.reshape(*flat.shape, -1)


def _inverse(
    index: tuple[Tensor, ...], shape: tuple[int, ...], canonical: Tensor, sizes: list[int]
) -> Tensor:
    """Return (G, T_q, T_k): the flat element that came from each score."""
    if any(bool((i < 0).any()) for i in index) and math.prod(index[0].shape) == math.prod(sizes):
        raise NotArrangedError("where some scores end up is hidden by the mask")
    flat = torch.zeros_like(index[0])
    known = torch.ones_like(index[0], dtype=torch.bool)
    for n, one in zip(shape, index, strict=True):
        flat = flat * n + one.clamp(min=0)
        known &= one >= 0
    out = torch.full((math.prod(sizes),), -1, dtype=torch.long)
    elements = torch.arange(flat.numel())[known.reshape(-1)]
    out[canonical[flat.reshape(-1)[known.reshape(-1)]]] = elements
    if bool((out < 0).any()):
        raise NotArrangedError("the heads are mixed between scores and weights")
    return out.reshape(sizes)
