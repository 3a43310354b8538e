"""The weights as the user's constructor left them: whether they make up for a scale."""

from __future__ import annotations

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct

FOLDED = 0.25
"""Relative distance of rms(W_q)/rms(W_k) from head_dim**-0.5 that sampling of the weights explains:
measured .25/.25 and .36/.35 for folded ones, 1.0 to 1.5 for others."""
EXACT = 0.1
"""The same for the spread of one weight, which is told from its own sampling alone."""
DEFAULT = 3**-0.5
"""rms(W) * sqrt(fan_in) of nn.Linear, which is head_dim**-0.5 by chance at a head_dim of 3."""


def init_ratio(bench: Bench, site: Site) -> float | None:
    """Return rms(W_q)/rms(W_k) of the weights as the user's constructor left them."""
    first = site.all[0]
    if first.q is None or first.k is None:
        return None
    one, two = (_rms(bench, o) for o in (first.q, first.k))
    if one is None or two is None:
        return None
    return one / two if two > 0 else None


def made_up_for(bench: Bench, site: Site, head_dim: int) -> float | None:
    """Return the factor by which W_q, or W_k, starts smaller than usual if it makes up for the scale.

    Either beside the other of the two, or by itself: std (d_model * head_dim)**-0.5, as T5 draws W_q,
    takes rows of unit variance to q of variance 1/head_dim whatever W_k is.
    """
    ratio, due = init_ratio(bench, site), head_dim**-0.5
    if ratio is None or due >= 0.8:
        return None
    first = site.all[0]
    spreads = [own for o in (first.q, first.k) if (own := _spread(bench, o)) is not None]
    if len(spreads) == 2 and all(abs(own - DEFAULT) < EXACT * DEFAULT for own in spreads):
        return None  # both as nn.Linear draws them; they may read states of different width
    for one in (ratio, 1 / ratio if ratio else 0.0):
        if abs(one - due) < FOLDED * due:
            return one
    if abs(ratio - 1) < FOLDED or abs(due - DEFAULT) < EXACT * due:
        return None  # both drawn alike, as most are
    for own in spreads:
        if abs(own - due) < min(EXACT * due, abs(own - DEFAULT)):
            return own
    return None


def _spread(bench: Bench, operand: Operand | None) -> float | None:
    """Return rms(W) * sqrt(fan_in): what W makes of rows of unit variance."""
    if operand is None or operand.source is None:
        return None
    rms = _rms(bench, operand)
    return None if rms is None else float(rms * operand.source.in_width**0.5)


def _rms(bench: Bench, operand: Operand) -> float | None:
    weight = _weight(bench, operand)
    return None if weight is None else float(weight.detach().double().square().mean().sqrt())


def _weight(bench: Bench, operand: Operand) -> Tensor | None:
    source = operand.source
    if source is None or source.kind != "projection":
        return None
    names = [n for n in source.parameters if n in bench.recording.parameters]
    if len(names) != 1:
        return None
    weight = bench.recording.values[bench.recording.parameters[names[0]]]
    if weight.dim() < 2 or weight.is_meta:
        return None
    traced = operand.trace
    if traced is None or len(source.channel_axes) != 1:
        return torch.as_tensor(weight)
    axis = source.channel_axes[0]
    if not traced.clean[axis]:
        return torch.as_tensor(weight)
    known = [i for i in distinct(traced.index[axis][traced.responds]) if i >= 0]
    if not known:
        return torch.as_tensor(weight)
    used = torch.tensor(known, device=weight.device)
    for dim in (0, 1):
        if weight.shape[dim] == source.out_width and weight.shape[dim] >= int(used.max()) + 1:
            return torch.as_tensor(weight.index_select(dim, used))
    return torch.as_tensor(weight)
