"""Where masked elements came from: a mask cuts the trace, but not the layout."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.sites.dependence import Dependence, is_number
from mha_lint.sites.trace import Trace, trace

MOST = 16
"""Nodes between scores and logits that are asked."""


def unmasked(
    dependence: Dependence, replay: Replay, scores: Node, logits: Node, traced: Trace
) -> Trace:
    """Return `traced` (scores -> logits) with the index of masked elements filled in.

    The node before the mask is asked where it has the same layout; else the axes, each of which runs
    along one axis of the scores.
    """
    if bool(traced.responds.all()) or not traced.responds.numel():
        return traced
    sized = tuple(traced.responds.shape)
    passed = [
        node
        for node in (scores, *dependence.between(scores, logits))
        if is_number(dependence.recording, node) and tuple(replay.base(node).shape) == sized
    ]
    if len(passed) > MOST:  # an unrolled loop
        passed = [*passed[: MOST // 2], *passed[-MOST // 2 :]]
    for node in passed[::-1]:
        earlier = trace(replay, scores, node)
        if bool(earlier.responds.all()) and _agree(traced, earlier):
            index = tuple(
                torch.where(traced.responds, a, b)
                for a, b in zip(traced.index, earlier.index, strict=True)
            )
            return replace(traced, index=index)
    index = tuple(
        torch.zeros_like(i) if n == 1 else _along_one_axis(i, traced.responds, n)
        for n, i in zip(traced.shape, traced.index, strict=True)
    )
    return replace(traced, index=index)


def _agree(one: Trace, other: Trace) -> bool:
    """Return whether elements that respond in both came from the same place."""
    both = one.responds & other.responds
    return all(
        bool((a == b)[both & (a >= 0) & (b >= 0)].all())
        for a, b in zip(one.index, other.index, strict=True)
    )


def _along_one_axis(index: Tensor, known: Tensor, size: int) -> Tensor:
    """Fill `index` in where it is a function of the place along one axis, and along no other.

    ``size``: that of the scores' axis; what lies beyond it (a sink beside the keys) is no score.
    """
    known = known & (index >= 0)
    if bool(known.all()) or not bool(known.any()):
        return index
    found = [f for a in range(index.dim()) if (f := _function_of(index, known, a)) is not None]
    if len({tuple(f.shape) for f in found}) != 1:
        return index
    filled = torch.where(known, index, found[0].expand_as(index))
    return torch.where(filled < size, filled, -1)


def _function_of(index: Tensor, known: Tensor, axis: int) -> Tensor | None:
    """Return what `index` is at each place along `axis`, None where it depends on more."""
    rest = [a for a in range(index.dim()) if a != axis]
    low = torch.where(known, index, torch.iinfo(index.dtype).max).amin(rest, keepdim=True)
    high = torch.where(known, index, -1).amax(rest, keepdim=True)
    seen = high >= 0
    if not bool((low == high)[seen].all()):
        return None
    sized = [index.shape[a] if a == axis else 1 for a in range(index.dim())]
    own = torch.arange(index.shape[axis]).view(sized)
    # What is masked throughout lies in its own place as well.
    return own if bool((high == own)[seen].all()) else high
