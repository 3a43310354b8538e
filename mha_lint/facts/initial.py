"""The weights as the user's constructor left them: whether they make up for a scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct

FOLDED = 0.25
"""Relative distance of the ratio of W_q to W_k from head_dim**-0.5 that sampling of the weights
explains: measured .25/.25 and .36/.35 for folded ones, 1.0 to 1.5 for others."""
EXACT = 0.1
"""The same for the spread of one weight, which is told from its own sampling alone."""
SAMPLING = 2.2
"""Over the root of their number: how far the spread of few weights lies from that which they are drawn
with, in all but a few of a thousand draws. Of n normal ones the rms has a relative standard deviation
of (2n)**-0.5, of uniform ones less."""
DEFAULT = 3**-0.5
"""rms(W) * sqrt(fan_in) of nn.Linear, which is head_dim**-0.5 by chance at a head_dim of 3."""


@dataclass(frozen=True, slots=True)
class _Start:
    """What W makes of rows of unit variance, rms(W) * sqrt(fan_in), and how many weights tell so."""

    spread: float
    count: int

    @property
    def usual(self) -> bool:
        """Return whether `nn.Linear` may have drawn it."""
        far: float = max(EXACT, SAMPLING / self.count**0.5)
        return abs(self.spread - DEFAULT) < far * DEFAULT


def init_ratio(bench: Bench, site: Site) -> float | None:
    """Return how much larger W_q starts than W_k, each for the width that it reads."""
    first = site.all[0]
    one, two = _start(bench, first.q), _start(bench, first.k)
    if one is None or two is None or not two.spread:
        return None
    return one.spread / two.spread


def made_up_for(bench: Bench, site: Site, head_dim: int) -> float | None:
    """Return the factor by which W_q, or W_k, starts smaller than usual if it makes up for the scale.

    Either beside the other of the two, or by itself: std (d_model * head_dim)**-0.5, as T5 draws W_q,
    takes rows of unit variance to q of variance 1/head_dim whatever W_k is.
    """
    ratio, due = init_ratio(bench, site), head_dim**-0.5
    if ratio is None or due >= 0.8:
        return None
    first = site.all[0]
    starts = [own for o in (first.q, first.k) if (own := _start(bench, o)) is not None]
    if len(starts) == 2 and all(own.usual for own in starts):
        return None  # both as nn.Linear draws them
    for one in (ratio, 1 / ratio if ratio else 0.0):
        if abs(one - due) < FOLDED * due:
            return one
    if abs(ratio - 1) < FOLDED or abs(due - DEFAULT) < EXACT * due:
        return None  # both drawn alike, as most are
    for own in starts:
        if not own.usual and abs(own.spread - due) < min(EXACT * due, abs(own.spread - DEFAULT)):
            return own.spread
    return None


def _start(bench: Bench, operand: Operand | None) -> _Start | None:
    if operand is None or operand.source is None:
        return None
    weight = _weight(bench, operand)
    if weight is None:
        return None
    rms = float(weight.detach().double().square().mean().sqrt())
    return _Start(rms * operand.source.in_width**0.5, weight.numel())


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
