"""What the normaliser is given at each pair of a query and a key, the score itself left aside.

The scores are replaced by zeros and the chain is run again: what arrives at the normaliser is the
bias and the mask alone. So it does not matter how a mask is spelled (a fill, a sum, ``where``, an
assignment to a slice), on which axes it lies, or in which convention it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.facts.bench import Bench
from mha_lint.facts.grouped import Grouped, grouped
from mha_lint.facts.order import order_of
from mha_lint.sites.dependence import op, operands
from mha_lint.sites.site import Site

HIDES = 5e3
"""A level this far below the highest of its row hides the key: the customary -1e4 does, a linear
bias over a few thousand positions (slope 1/2 at most) does not."""


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Each tensor is (G, T_q, T_k), G = samples x heads; see `mha_lint.facts.order`.

    ``level``: what the normaliser is given where all scores are 0 (-inf, a fill, a bias).
    ``follows``: that value moves with the score, so that it is no fill. ``weights``: the operand
    that meets V, on the bench's random data. ``group``: samples, heads and positions.
    """

    level: Tensor
    follows: Tensor
    weights: Tensor
    group: Grouped

    @property
    def hidden(self) -> Tensor:
        """Return which pairs the mask hides; a row that is hidden throughout counts as hidden."""
        level = without_nan(self.level)
        highest = level.amax(-1, keepdim=True)
        floor = torch.where(highest > -HIDES, highest, torch.zeros_like(highest)) - HIDES
        return level <= floor

    @property
    def visible(self) -> Tensor:
        """Return which pairs the mask leaves, and no step behind the normaliser takes away."""
        return ~self.hidden & (self.weights != 0)


_KNOWN: WeakKeyDictionary[Replay, dict[int, Levels]] = WeakKeyDictionary()


def levels_of(bench: Bench, site: Site) -> Levels:
    """Return the levels of `site`, a single site or a member of a group.

    Raises:
        NotArrangedError: heads or positions are mixed, or there is no product of queries and keys.
    """
    known = _KNOWN.setdefault(bench.replay, {})
    if id(site) not in known:
        known[id(site)] = _measured(bench, site)
    return known[id(site)]


def _measured(bench: Bench, site: Site) -> Levels:
    order = order_of(bench, site)
    replay, logits = bench.replay, site.normaliser.logits
    assert site.to_logits is not None
    above = bench.dependence.ancestors([logits])
    zeros = {n: torch.zeros_like(replay.base(n)) for n in site.extra if n in above}
    zeros[site.scores] = _without_product(bench, site)
    if logits in zeros:
        level = zeros[logits]
    else:
        (level,) = replay.run([logits], zeros)
    return Levels(
        level.reshape(-1)[order.logits],
        site.to_logits.responds.reshape(-1)[order.logits],
        undropped(bench, site, {}).reshape(-1)[order.weights],
        grouped(bench, site),
    )


def undropped(bench: Bench, site: Site, substitute: Mapping[Node, Tensor]) -> Tensor:
    """Return the weights that meet V, with those in place that a dropout took away by chance.

    `substitute`: values in the place of others, as for a replay.
    """
    end, put = site.weights, dict(substitute)
    for node in bench.dependence.between(site.normaliser.weights, end):
        if op(node) == "dropout" and operands(node):
            (put[node],) = bench.replay.run([operands(node)[0]], put)
    (found,) = bench.replay.run([end], put) if put else (bench.replay.base(end),)
    return torch.as_tensor(found)


def without_nan(level: Tensor) -> Tensor:
    """Return `level` with what is no number (a hidden score times 0) counted as hidden."""
    return torch.where(level.isnan(), torch.full_like(level, -torch.inf), level)


def _without_product(bench: Bench, site: Site) -> Tensor:
    """Return the scores without the product of queries and keys: what ``baddbmm`` adds, else 0."""
    score = site.score
    assert score is not None
    left = bench.replay.base(score.left)
    (rest,) = bench.replay.run([score.node], {score.left: torch.zeros_like(left)})
    return torch.as_tensor(rest)
