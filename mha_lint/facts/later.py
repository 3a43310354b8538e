"""What becomes of the weights behind the first normaliser: normalised once more, or no longer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.sites.dependence import is_number, op, operands
from mha_lint.sites.site import Site

LINEAR = 1e-9
"""Relative: doubling the input of a linear map doubles its output to rounding."""
RENORMALISED = 1e-3
"""Relative: by how much a small constant (attn + eps, sum + eps) may disturb a renormalisation."""
SUM = 1e-6
"""How far the sum of weights may be from one."""


def _weighs(bench: Bench, site: Site, node: Node) -> bool:
    """Return whether `node` holds weights again: a softmax, or what is positive and sums to one."""
    if op(node) in ("softmax", "log_softmax"):
        return True
    value = bench.replay.base(node)
    if value.shape != bench.replay.base(site.normaliser.weights).shape or bool(
        (value < -1e-12).any()
    ):
        return False
    return any(bool(((value.sum(a) - 1).abs() < SUM).all()) for a in range(value.dim()))


def _divides_by_sum(bench: Bench, node: Node) -> bool:
    """Return whether `node` does not change when what it reads is doubled: mixed weights, say."""
    once = bench.replay.base(node)
    for one in operands(node):
        if not is_number(bench.recording, one) or bench.replay.base(one).shape != once.shape:
            continue
        (twice,) = bench.replay.run([node], {one: 2 * bench.replay.base(one)})
        if bool((twice - once).abs().max() < RENORMALISED * once.abs().max().clamp(min=1e-300)):
            return True
    return False


def _takes_logarithms(bench: Bench, weights: Node, node: Node) -> bool:
    """Return whether `weights` are logarithms of weights that `node` takes for such.

    A softmax of log-probabilities, with a prior added to them, multiplies by the prior and divides
    by the sum again. It does not change when all of them grow by the same.
    """
    at = bench.replay.base(weights)
    if not is_number(bench.recording, weights) or bool((at > SUM).any()):
        return False
    if not any(bool(((at.exp().sum(a) - 1).abs() < SUM).all()) for a in range(at.dim())):
        return False
    once = bench.replay.base(node)
    (shifted,) = bench.replay.run([node], {weights: at + 1.0})
    return bool(_largest(shifted - once) < RENORMALISED * _largest(once).clamp(min=1e-300))


def _largest(value: Tensor) -> Tensor:
    """Return the largest size of an element; a logarithm of less than nothing is left out."""
    return value.abs().nan_to_num().max()


def later_normalisers(bench: Bench, site: Site) -> tuple[int, bool]:
    """Count normalisers: a later coupling that is no renormalisation and no linear map is another."""
    times, renormalised = 1, False
    cut: Node = site.normaliser.weights
    for node in site.normaliser.later:
        at = bench.replay.base(cut)
        once = bench.replay.base(node)
        (twice,) = bench.replay.run([node], {cut: 2 * at})
        size = _largest(once).clamp(min=1e-300)
        if (
            bool(_largest(twice - once) < RENORMALISED * size)
            or _divides_by_sum(bench, node)
            or _takes_logarithms(bench, cut, node)
        ):
            renormalised = True
        elif not bool(_largest(twice - 2 * once) < LINEAR * size) and _weighs(bench, site, node):
            times += 1
        cut = node
    return times, renormalised


def uneven_sums(bench: Bench, site: Site) -> bool:
    """Return whether some query's weights sum to more than one, and another query's to another sum.

    A gate, a sink and a mask only take away; a factor does the same to all queries. What is added to
    the weights, a learned adjacency say, is no weight of theirs.
    """
    weights, labels = site.value.side(site.weights_left)
    value = bench.replay.base(weights)
    keys = [i for i, x in enumerate(labels) if x is not None and x in site.value.summed]
    free = site.value.free(site.weights_left)
    rows = [i for i, x in enumerate(labels) if x is not None and x in free]
    if not keys or not rows or not bool((value >= -SUM).all()):  # NaN, or no weights
        return False
    total = value.sum(keys, keepdim=True)
    spread = total.amax(rows) - total.amin(rows)
    if float(total.max()) < 1 + SUM or bool((spread < SUM).all()):
        return False
    found = site.normaliser.weights
    (left,) = bench.replay.run([weights], {found: torch.zeros_like(bench.replay.base(found))})
    return not bool(left.nan_to_num().any())
