"""Which sample and which head each score matrix belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.oracle.data import SiteData
from mha_lint.oracle.layouts import RowLabels


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """``order``: (n, h) long, the group of each head (n = G / h, samples or windows of samples).

    ``known``: whether that was read off the data, rather than assumed. ``rows``: what the rows of
    the queries are, where that could be read off.
    """

    order: Tensor
    known: bool
    rows: RowLabels | None = None

    def unfold(self, grouped: Tensor) -> Tensor:
        """Return (G, ...) as (n, h, ...)."""
        return grouped[self.order]

    def fold(self, unfolded: Tensor) -> Tensor:
        """Return (n, h, ...) as (G, ...)."""
        folded = torch.empty_like(unfolded).flatten(0, 1)
        folded[self.order.flatten()] = unfolded.flatten(0, 1)
        return folded


def find_groups(data: SiteData, rows: RowLabels | None) -> Groups | None:
    """Return the groups of a site: read off its queries, as told, or sample-major."""
    groups = data.raw.shape[0]
    if rows is not None:
        order = _by_head(rows.sample[:, 0], rows.position[:, 0], rows.head)
        if order is not None:
            return Groups(order, True, rows)
    if data.group_of is not None and data.group_of.shape == (groups, 2):
        told = data.group_of.to(data.raw.device)
        order = _by_head(told[:, 0], torch.zeros_like(told[:, 0]), told[:, 1])
        if order is not None:
            return Groups(order, True)
    if data.heads > 0 and groups % data.heads == 0:
        order = torch.arange(groups, device=data.raw.device).view(-1, data.heads)
        return Groups(order, False)
    return None


def _by_head(sample: Tensor, position: Tensor, head: Tensor) -> Tensor | None:
    """Return (n, h) group numbers, by sample and first position; None if heads come unevenly."""
    heads = int(head.max()) + 1
    key = (sample * (int(position.max()) + 1) + position) * heads + head
    order = key.argsort(stable=True)
    if len(order) % heads:
        return None
    table = order.view(-1, heads)
    wanted = torch.arange(heads, device=head.device).expand_as(table)
    return table if bool((head[table] == wanted).all()) else None
