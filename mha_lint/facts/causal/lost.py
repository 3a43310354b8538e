"""A triangle that is drawn and lost again: joined with another mask so that nothing is hidden."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.causal.lines import mask_nodes
from mha_lint.sites.dependence import operands
from mha_lint.sites.site import Site


def lost_triangle(bench: Bench, site: Site, count: int) -> Node | None:
    """Return the node at which a triangle over (count, count) meets its complement, if there is one.

    What hides the future AND something that lies in the past alone hides nothing, at any length;
    what keeps the past OR something that the whole future belongs to keeps everything.
    """
    for node in mask_nodes(bench, site):
        pair = [_plane(bench, n, count) for n in operands(node)]
        known = [p for p in pair if p is not None]
        made = _plane(bench, node, count)
        if len(known) != 2 or len(operands(node)) != 2 or made is None:
            continue
        if not (bool(made.all()) or not bool(made.any())):
            continue
        if any(_opposite(a, b) for a, b in (known, known[::-1])):
            return node
    return None


def _opposite(triangle: Tensor, other: Tensor) -> bool:
    """Return whether `triangle` is one side of the diagonal, and `other` lies on the other side."""
    size = triangle.shape[0]
    later = torch.ones(size, size, dtype=torch.bool).triu(1)
    if bool((triangle == later).all()):  # hides, and is joined by AND
        return bool(other.any()) and not bool((other & later).any())
    if bool((triangle == ~later).all()):  # keeps, and is joined by OR
        return not bool(other.all()) and bool(other[later].all())
    return False


def _plane(bench: Bench, node: Node, count: int) -> Tensor | None:
    """Return the mask of trues (or of 0 and 1) that `node` holds as (count, count), None if it is none."""
    value = bench.recording.values.get(node)
    if not isinstance(value, Tensor) or value.dim() < 2:
        return None
    if tuple(value.shape[-2:]) != (count, count) or value.is_complex():
        return None
    if value.dtype is not torch.bool and not bool(((value == 0) | (value == 1)).all()):
        return None
    flat = value.reshape(-1, count, count).bool()
    return flat[0] if bool((flat == flat[:1]).all()) else None
