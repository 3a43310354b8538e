"""Which pairs of a query and a key a site leaves visible when something about its masks is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.levels import HIDES, levels_of, undropped, without_nan
from mha_lint.facts.masks.once import once
from mha_lint.facts.order import Order, order_of
from mha_lint.sites.dependence import operands
from mha_lint.sites.site import Site


@dataclass(frozen=True, slots=True, eq=False)
class _Plain:
    """What is put in the place of the scores, and where the elements of a site stand."""

    order: Order
    scores: dict[Node, Tensor]


def visible_with(bench: Bench, site: Site, substitute: Mapping[Node, Tensor]) -> Tensor:
    """Return (G, T_q, T_k) what is visible at `site` when the nodes of `substitute` have these values.

    Raises:
        NotArrangedError: as `levels_of` does.
    """
    plain = _plain(bench, site)
    logits = site.normaliser.logits
    (level,) = bench.replay.run([logits], {**plain.scores, **substitute})
    shaped = without_nan(level).reshape(-1)[plain.order.logits]
    highest = shaped.amax(-1, keepdim=True)
    floor = torch.where(highest > -HIDES, highest, torch.zeros_like(highest)) - HIDES
    kept = undropped(bench, site, substitute).reshape(-1)[plain.order.weights] != 0
    # A row that is hidden throughout has no weights worth looking at: not a number, or all alike.
    return torch.as_tensor((shaped > floor) & kept)


@once
def _plain(bench: Bench, site: Site) -> _Plain:
    levels_of(bench, site)  # raises where there is no order
    assert site.score is not None
    above = bench.dependence.ancestors([site.normaliser.logits])
    # ``baddbmm`` adds a mask to the product at once: there an operand is put to 0 instead.
    joined = len(operands(site.score.node)) > len({site.score.left, site.score.right})
    emptied = site.score.left if joined else site.score.node
    scores = {
        n: torch.zeros_like(bench.replay.base(n)) for n in (*site.extra, emptied) if n in above
    }
    return _Plain(order_of(bench, site), scores)


def follows_with(bench: Bench, site: Site, substitute: Mapping[Node, Tensor]) -> Tensor:
    """Return (G, T_q, T_k) where what the normaliser is given still moves with the scores.

    Raises:
        NotArrangedError: as `levels_of` does.
    """
    plain = _plain(bench, site)
    logits = site.normaliser.logits
    moved = {n: torch.ones_like(v) for n, v in plain.scores.items()}
    low, high = (
        torch.as_tensor(bench.replay.run([logits], {**put, **substitute})[0])
        for put in (plain.scores, moved)
    )
    return (low != high).reshape(-1)[plain.order.logits]
