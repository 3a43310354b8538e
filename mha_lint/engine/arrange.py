"""Bring the tensors of a site into the oracle's order of axes: groups, rows, columns."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.capture import Replay
from mha_lint.facts.bench import Bench
from mha_lint.facts.gain import contraction_gain
from mha_lint.facts.heads import input_head_axes, shared_head_axes
from mha_lint.facts.order import NotArrangedError, order_of, score_operands, value_side
from mha_lint.oracle import Native, Operand
from mha_lint.sites.operand import Operand as SiteOperand
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct


@dataclass(slots=True)
class Arranged:
    """One site (or one member) in the oracle's order; see `mha_lint.oracle.data` for the axes."""

    q: Operand
    k: Operand
    v: Operand
    raw: Tensor
    logits: Tensor
    additive: Tensor
    weights: Tensor
    context: Tensor
    native: Native | None


def arrange(bench: Bench, site: Site, replay: Replay) -> Arranged:
    """Return the tensors of `site` as `replay` computes them.

    Raises:
        NotArrangedError: heads or positions are mixed on the way, so that there is no such order.
    """
    order = order_of(bench, site)
    assert site.q is not None and site.k is not None
    scores = replay.base(site.scores)
    q, k = score_operands(site, replay)
    logits = replay.base(site.normaliser.logits)
    raw = q @ k.transpose(-1, -2)
    back = torch.empty_like(raw).reshape(-1)
    back[order.natural] = raw.reshape(-1)
    alpha = contraction_gain(bench, site) or 1.0
    rest = scores - alpha * back.reshape(scores.shape)
    if site.normaliser.logits is site.scores:
        without = rest
    else:
        (without,) = replay.run([site.normaliser.logits], {site.scores: rest})
    weights = replay.base(site.weights)
    v, context = value_side(site, replay, order)
    last = dataclasses.replace(order, weights=order.weights.flip(1))
    other = value_side(site, replay, last)[0]
    if not torch.allclose(v, other, rtol=0, atol=0, equal_nan=True):
        raise NotArrangedError("queries that share their keys do not share their values")
    full = logits.reshape(-1)
    extra = logits.numel() > raw.numel()
    return Arranged(
        q=_operand(bench, site.q, q, replay),
        k=_operand(bench, site.k, k, replay),
        v=_operand(bench, site.v, v, replay),
        raw=raw,
        logits=full[order.logits],
        additive=without.reshape(-1)[order.logits],
        weights=weights.reshape(-1)[order.weights],
        context=context,
        native=Native(logits, order.logits) if extra else None,
    )


def _operand(bench: Bench, operand: SiteOperand, value: Tensor, replay: Replay) -> Operand:
    source, traced = operand.source, operand.trace
    if source is None or traced is None or source.kind != "projection":
        return Operand(value)
    arranged = source_tensor(bench, operand, replay.base(source.node))
    used = _used_channels(operand)
    if used is not None and len(used) < arranged.shape[-1]:
        arranged = arranged[..., used]  # the part of a fused projection that is this operand's
    opaque = (
        None
        if traced.all_clean
        else "channels are mixed between projection and product (a rotation or a norm)"
    )
    return Operand(value, arranged, None, opaque)


def _used_channels(operand: SiteOperand) -> list[int] | None:
    """Return the channels of the source that the operand reads, where that is known exactly."""
    source, traced = operand.source, operand.trace
    if source is None or traced is None or len(source.channel_axes) != 1:
        return None
    axis = source.channel_axes[0]
    if not traced.clean[axis]:
        return None
    return distinct(traced.index[axis][traced.responds])


def source_tensor(bench: Bench, operand: SiteOperand, value: Tensor) -> Tensor:
    """Return a projection's output as (B, T, C)."""
    source = operand.source
    assert source is not None
    heads = (*shared_head_axes(bench, operand), *input_head_axes(operand))
    positions = [a for a in source.data_axes if a in operand.position_axes and a not in heads]
    samples = [a for a in source.data_axes if a not in positions and a not in heads]
    if not positions and len(samples) > 1:
        samples, positions = samples[:1], samples[1:]
    channels = (*heads, *source.channel_axes)
    sizes = [math.prod(value.shape[a] for a in axes) for axes in (samples, positions, channels)]
    return value.permute(*samples, *positions, *channels).reshape(sizes)
