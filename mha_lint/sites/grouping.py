"""Heads that a loop or a list computes one by one are one site."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from torch.fx import Node

from mha_lint.sites.dependence import Dependence, op, operands, stack_of
from mha_lint.sites.site import Site

PLAIN = frozenset(
    {"view", "reshape", "transpose", "permute", "contiguous", "unsqueeze", "squeeze", "flatten"}
    | {"unflatten", "add", "dropout", "clone"}
)
"""Layout changes and sums: what may stand between a context and where it is laid beside others."""
PLACED = frozenset(
    {"cat", "index", "narrow", "slice", "setitem", "slice_scatter", "copy", "clone", "contiguous"}
    | {"view", "reshape", "index_put", "index_copy", "getitem", "split", "chunk", "tensor_split"}
)
"""How a result is put into a part of another tensor."""


def group_heads(dependence: Dependence, sites: list[Site]) -> list[Site]:
    """Join the sites of one loop over heads: same source lines, none feeding another's operands."""
    groups: list[list[Site]] = []
    alike: dict[Hashable, list[list[Site]]] = {}
    rows = _laid_side_by_side(dependence, sites)
    for site in sites:
        # Heads of unequal width are a fault to be told, so only positions and samples must agree.
        sizes = dependence.recording.values[site.scores].shape
        candidates = alike.setdefault((site.kind, _places(site.context), sizes), [])
        for group in candidates:
            if _siblings(dependence, group, site, rows):
                group.append(site)
                break
        else:
            candidates.append([site])
            groups.append(candidates[-1])
    return [replace(g[0], members=tuple(g)) if len(g) > 1 else g[0] for g in groups]


def _siblings(
    dependence: Dependence, group: list[Site], site: Site, rows: list[frozenset[Node]]
) -> bool:
    above = dependence.ancestors([site.context])
    if not any(member.context in above for member in group):
        return True
    # A loop that overwrites its input: still one loop, if its results are laid side by side.
    contexts = {site.context, *(m.context for m in group)}
    return any(contexts <= row for row in rows) or _written_into_input(dependence, group, site)


def _written_into_input(dependence: Dependence, group: list[Site], site: Site) -> bool:
    """Return whether `site` reads what the first site of `group` read, with a part of the channels
    replaced by the context of the last one.

    Layers that read what they all found before (wider and wider), and loops over positions, do not.
    """
    reads = [s.q.source.reads if s.q is not None and s.q.source else None for s in (group[0], site)]
    first, later = reads
    if first is None or later is None:
        return False
    values, context = dependence.recording.values, group[-1].context
    sizes, part = tuple(values[later].shape), tuple(values[context].shape)
    if sizes != tuple(values[first].shape) or sizes[:-1] != part[:-1] or part[-1] >= sizes[-1]:
        return False
    return context in _unlearned(dependence, later, PLACED)


def _laid_side_by_side(dependence: Dependence, sites: list[Site]) -> list[frozenset[Node]]:
    """Return which contexts each cat or stack takes, with nothing learned between."""
    contexts = {site.context for site in sites}
    rows = (
        frozenset().union(*(_unlearned(dependence, part) & contexts for part in operands(node)))
        for node in dependence.nodes
        if op(node) in ("cat", "stack") and len(operands(node)) > 1
    )
    return [row for row in rows if len(row) > 1]


def _unlearned(dependence: Dependence, node: Node, through: frozenset[str] = PLAIN) -> set[Node]:
    """Return what `node` is made of by layout and sums, or other operations, alone."""
    seen: set[Node] = set()
    front = [node]
    while front:
        one = front.pop()
        if one in seen:
            continue
        seen.add(one)
        if op(one) in through:
            front += operands(one)
    return seen


def _places(node: Node) -> tuple[object, ...]:
    return tuple(frame.span for frame in stack_of(node))
