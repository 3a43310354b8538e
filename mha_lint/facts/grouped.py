"""Which sample and which head each score matrix of a site belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.heads import head_codes, input_head_axes, shared_head_axes
from mha_lint.facts.order import score_operands
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """The samples and heads of the G groups of one site, in the order of `mha_lint.facts.order`.

    ``samples`` (G,): a number per sample (or window of one). ``heads`` (G,): a number per query
    head, in the order in which they first appear. ``queries`` (G, T_q) and ``keys`` (G, T_k): the
    position in the source that each row and each key holds, -1 where it has none (a learned key, or
    positions that are mixed).
    """

    samples: Tensor
    heads: Tensor
    queries: Tensor
    keys: Tensor


class Stand:
    """Tells, in the place of a node's value, what each of its elements came from."""

    def __init__(self, bench: Bench, values: dict[Node, Tensor]) -> None:
        """Stand in for the nodes in `values`."""
        self._bench = bench
        self._values = values

    def base(self, node: Node) -> Any:
        """Return what stands for the value of `node`."""
        return self._values.get(node, self._bench.replay.base(node))


def grouped(bench: Bench, site: Site) -> Grouped:
    """Return what each group, row and key of `site` (a member, with a score) holds."""
    assert site.q is not None and site.k is not None
    samples = _numbered(_arranged(bench, site, site.q, _samples(bench, site.q), queries=True))
    heads = _numbered(_arranged(bench, site, site.q, _heads(bench, site.q), queries=True))
    queries = _arranged(bench, site, site.q, positions_in(bench, site.q), queries=True)
    keys = _arranged(bench, site, site.k, positions_in(bench, site.k), queries=False)
    return Grouped(samples[:, 0], heads[:, 0], queries, keys)


def _arranged(
    bench: Bench, site: Site, operand: Operand, index: Tensor, *, queries: bool
) -> Tensor:
    """Return (G, R): the largest of `index` (the operand's shape) over one vector."""
    stand = Stand(bench, {operand.node: index})
    q, k = score_operands(site, stand)
    return (q if queries else k).amax(-1)


def _samples(bench: Bench, operand: Operand) -> Tensor:
    source, traced = operand.source, operand.trace
    if source is None or traced is None:
        return torch.zeros_like(bench.replay.base(operand.node)).long()
    heads = (*shared_head_axes(bench, operand), *input_head_axes(operand))
    axes = [a for a in source.data_axes if a not in operand.position_axes and a not in heads]
    return combined(traced.shape, traced.index, axes)


def _heads(bench: Bench, operand: Operand) -> Tensor:
    codes = head_codes(bench, operand)
    if codes is None:
        return torch.zeros_like(bench.replay.base(operand.node)).long()
    return codes


def positions_in(bench: Bench, operand: Operand) -> Tensor:
    """Return, in the shape of `operand`, the position in its source of each element, -1 for none."""
    source, traced = operand.source, operand.trace
    if source is None or traced is None or not operand.position_axes:
        return torch.full_like(bench.replay.base(operand.node), -1).long()
    axes = sorted(operand.position_axes)
    index = combined(traced.shape, traced.index, axes)
    known = torch.stack([traced.index[a] >= 0 for a in axes]).all(0)
    return torch.where(known, index, -1)


def combined(shape: tuple[int, ...], index: tuple[Tensor, ...], axes: list[int]) -> Tensor:
    """Return the places along `axes`, of these sizes in `shape`, as one number."""
    out = torch.zeros_like(index[0])
    for a in axes:
        out = out * shape[a] + index[a].clamp(min=0)
    return out


def _numbered(codes: Tensor) -> Tensor:
    """Return `codes` (G, R) as small numbers, in the order in which the groups first have them."""
    seen: dict[int, int] = {}
    first = codes.amax(-1)
    for code in first.tolist():
        seen.setdefault(code, len(seen))
    return torch.tensor([[seen[c]] for c in first.tolist()], dtype=torch.long)
