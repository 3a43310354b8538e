"""What looks like scores or weights at first sight, and is none."""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.sites.contraction import Contraction
from mha_lint.sites.normaliser import Normaliser
from mha_lint.sites.source import Sources
from mha_lint.sites.trace import Trace

NEGATIVE = -1e-12
LINEAR = 1e-6
"""Relative: by how much a linear map may miss the middle of two results, in float64."""


def is_filter(replay: Replay, normalised: Node, weights: Node, summed: list[int]) -> bool:
    """Return whether a coupling is a norm or a filter: of both signs, and no row sums to one."""
    if not bool((replay.base(normalised) < NEGATIVE).any()):
        return False
    total = replay.base(weights).sum(summed)
    return bool(((total - 1).abs() > 1e-6).any())


def is_function_of_weights(replay: Replay, normalised: Node, weights: Node) -> bool:
    """Return whether `weights` are no weights, but a function of such, as their logarithm is.

    What meets V is linear in the normalised weights, or not negative (renormalised, cut off).
    """
    value = replay.base(weights)
    if normalised is weights or not bool((value < NEGATIVE).any()):
        return False
    at = replay.base(normalised)
    twice, half = (replay.run([weights], {normalised: at * by})[0] for by in (2.0, 1.5))
    gap = ((twice + value) / 2 - half).abs()
    gap = gap[torch.isfinite(gap)]
    return bool(gap.numel()) and bool(gap.max() > LINEAR * value.abs().max())


def is_affinity(
    sources: Sources, score: Contraction, normaliser: Normaliser, traced: Trace
) -> bool:
    """Return whether a learned map sums queries or keys up before the softmax.

    Then the product is a feature that scores are made from (co-attention), and not the scores. A
    map over heads keeps queries and keys apart, and a convolution over both keeps their number.
    `traced` leads from the product to the normaliser's input.
    """
    free = {*score.free(True), *score.free(False)}
    mixed = any(
        x in free and size > 1 and not clean
        for x, size, clean in zip(score.out_labels, traced.shape, traced.clean, strict=True)
    )
    if not mixed or traced.responds.numel() >= math.prod(traced.shape):
        return False
    path = sources.dependence.between(score.node, normaliser.logits)
    return any(sources.learned_map(n) is not None for n in path)
