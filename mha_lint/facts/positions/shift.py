"""Further products that are shifted into place: whether each score keeps to its own query and key."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.grouped import grouped
from mha_lint.facts.order import order_of
from mha_lint.facts.places import span_of
from mha_lint.model.position_facts import WrongShift
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct, trace


def wrong_shift(bench: Bench, site: Site, visible: Tensor) -> WrongShift | None:
    """Return a product beside q.k whose rows end up at other queries, where `visible` (G, T_q, T_k)."""
    for extra in further_products(bench, site):
        found = _moved_rows(bench, site, extra, visible)
        if found is not None:
            return found
    return None


def further_products(bench: Bench, site: Site) -> list[Node]:
    """Return the products that are added to q.k before the normaliser; maps over heads are none."""
    below = bench.dependence.descendants([site.scores])
    above = bench.dependence.ancestors([site.normaliser.logits])
    return [extra for extra in site.extra if extra in above and extra not in below]


def handed_over(bench: Bench, members: list[Site]) -> bool:
    """Return whether relative positions come by an argument of their own, beside q, k and v."""
    above = bench.dependence.ancestors
    for member in members:
        operands = [o.node for o in (member.q, member.k, member.v) if o is not None]
        states = above(operands)
        extras = above(further_products(bench, member))
        if any(
            p in extras and p not in states and bench.replay.base(p).is_floating_point()
            for p in bench.recording.placeholders
        ):
            return True
    return False


def _moved_rows(bench: Bench, site: Site, extra: Node, visible: Tensor) -> WrongShift | None:
    traced = trace(bench.replay, extra, site.normaliser.logits)
    if not traced.all_clean or not bool(traced.responds.any()):
        return None
    for operand in (site.q, site.k):
        held = _tokens(bench, operand, extra)
        if held is None:
            continue
        order, group = order_of(bench, site), grouped(bench, site)
        flat = traced.flat().reshape(-1)[order.logits]
        token = torch.where(flat >= 0, held.reshape(-1)[flat.clamp(min=0)], -1)
        rows, keys = group.queries[:, :, None], group.keys[:, None]
        known = (token >= 0) & (rows >= 0) & (keys >= 0) & visible
        strange = known & (token != rows) & (token != keys)
        if not bool(strange.any()):
            columns = _columns(traced.index, held, flat, order.logits, visible)
            if columns is None or operand is not site.q:
                return None
            return _padded(bench, site, extra, columns, (token, rows, keys), visible)
        g, i, j = (int(p) for p in strange.nonzero()[0])
        return WrongShift(
            query=int(rows[g, i, 0]), key=int(keys[g, 0, j]), row=int(token[g, i, j]),
            count=int(strange[g].sum()), visible=int(visible[g].sum()),
            span=span_of(_culprit(bench, site, extra, held, rows, keys, visible)),
        )  # fmt: skip
    return None


def _columns(
    index: tuple[Tensor, ...], held: Tensor, flat: Tensor, order: Tensor, visible: Tensor
) -> tuple[Tensor, int] | None:
    """Return which relative position each score holds (-1: none), and how many a query has."""
    here = (flat >= 0) & visible
    axes = []
    for axis, one in enumerate(index):
        column = one.reshape(-1)[order]
        low = column.masked_fill(~here, held.shape[axis]).amin(-1)
        high = column.masked_fill(~here, -1).amax(-1)
        along = held.select(axis, 0).unsqueeze(axis)
        if bool((high > low).any()) and bool((held == along).all()):
            axes.append((torch.where(here, column, -1), held.shape[axis]))
    return axes[0] if len(axes) == 1 else None


def _padded(
    bench: Bench,
    site: Site,
    extra: Node,
    columns: tuple[Tensor, int],
    held: tuple[Tensor, Tensor, Tensor],
    visible: Tensor,
) -> WrongShift | None:
    """Return a visible score that holds padding, though each query has products for all its keys.

    The relative positions go up by one from key to key, and would go on beyond their number.
    """
    (column, count), (token, rows, keys) = columns, held
    ahead = (keys - rows).expand(visible.shape)
    usable = visible & (rows >= 0) & (keys >= 0)
    known, empty = usable & (token >= 0), usable & (token < 0)
    if not bool(known.any()) or not bool(empty.any()):
        return None
    start = column - ahead
    first = int(start[known][0])
    beyond = ahead[empty] + first
    if not bool((start[known] == first).all()) or bool(((beyond >= 0) & (beyond < count)).any()):
        return None
    if len(distinct(ahead[usable])) > count:
        return None  # positions that are too far to have a product of their own
    g, i, j = (int(p) for p in empty.nonzero()[0])
    return WrongShift(
        query=int(rows[g, i, 0]), key=int(keys[g, 0, j]), row=-1,
        count=int(empty[g].sum()), visible=int(visible[g].sum()),
        span=span_of(_widened(bench, site, extra)),
    )  # fmt: skip


def _widened(bench: Bench, site: Site, extra: Node) -> Node:
    """Return the step at which padding joins the product."""
    before = bench.replay.base(extra).numel()
    for node in bench.dependence.between(extra, site.normaliser.logits):
        value = bench.replay.base(node)
        if isinstance(value, Tensor) and value.numel() > before:
            return node
    return site.normaliser.logits


def _tokens(bench: Bench, operand: Operand | None, extra: Node) -> Tensor | None:
    """Return, in the shape of `extra`, the position of `operand`'s source that an element holds."""
    found = bench.finder.sources.contraction(extra)
    source = operand.source if operand is not None else None
    if found is None or source is None or operand is None:
        return None
    for left in (True, False):
        node, labels = found.side(left)
        if source.node not in bench.dependence.ancestors([node]):
            continue
        traced = trace(bench.replay, source.node, node)
        axes = sorted(operand.position_axes)
        if not axes or not all(traced.clean[a] for a in axes):
            return None
        index = torch.zeros_like(traced.index[0])
        for a in axes:
            index = index * traced.shape[a] + traced.index[a].clamp(min=0)
        index = torch.where(traced.responds, index, -1)
        for axis in reversed([a for a, x in enumerate(labels) if x in found.summed]):
            index = index.amax(axis)
        kept = [x for x in labels if x not in found.summed]
        shape = bench.replay.base(extra).shape
        for label in [x for x in found.out_labels if x not in kept]:
            index, kept = index.unsqueeze(-1), [*kept, label]
        if any(x not in kept for x in found.out_labels):
            return None
        return index.permute([kept.index(x) for x in found.out_labels]).expand(shape)
    return None


def _culprit(
    bench: Bench, site: Site, extra: Node, held: Tensor, rows: Tensor, keys: Tensor, visible: Tensor
) -> Node:
    """Return the step at which the product first stands at other queries."""
    order = order_of(bench, site)
    sized = bench.replay.base(site.normaliser.logits).shape
    for node in bench.dependence.between(extra, site.normaliser.logits):
        value = bench.replay.base(node)
        if not isinstance(value, Tensor) or value.shape != sized:
            continue
        flat = trace(bench.replay, extra, node).flat().reshape(-1)[order.logits]
        token = torch.where(flat >= 0, held.reshape(-1)[flat.clamp(min=0)], -1)
        if bool(((token >= 0) & (token != rows) & (token != keys) & visible).any()):
            return node
    return site.normaliser.logits
