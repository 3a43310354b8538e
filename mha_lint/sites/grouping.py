"""Heads that a loop or a list computes one by one are one site."""

from __future__ import annotations

from dataclasses import replace

from torch.fx import Node

from mha_lint.sites.dependence import Dependence, op, operands, stack_of
from mha_lint.sites.site import Site

PLAIN = frozenset(
    {"view", "reshape", "transpose", "permute", "contiguous", "unsqueeze", "squeeze", "flatten"}
    | {"unflatten", "add", "dropout", "clone"}
)
"""Layout changes and sums: what may stand between a context and where it is laid beside others."""


def group_heads(dependence: Dependence, sites: list[Site]) -> list[Site]:
    """Join the sites of one loop over heads: same source lines, none feeding another's operands."""
    groups: list[list[Site]] = []
    for site in sites:
        for group in groups:
            if _siblings(dependence, group, site):
                group.append(site)
                break
        else:
            groups.append([site])
    return [replace(g[0], members=tuple(g)) if len(g) > 1 else g[0] for g in groups]


def _siblings(dependence: Dependence, group: list[Site], site: Site) -> bool:
    first = group[0]
    if first.kind is not site.kind or _places(first.context) != _places(site.context):
        return False
    recording = dependence.recording
    # Heads of unequal width are a fault to be told, so only positions and samples must agree.
    if recording.values[first.scores].shape != recording.values[site.scores].shape:
        return False
    above = dependence.ancestors([site.context])
    if not any(member.context in above for member in group):
        return True
    # A loop that overwrites its input: still one loop, if its results are laid side by side.
    return _side_by_side(dependence, [*(m.context for m in group), site.context])


def _side_by_side(dependence: Dependence, contexts: list[Node]) -> bool:
    """Return whether one cat or stack takes all `contexts`, with nothing learned between."""
    for node in dependence.recording.graph.nodes:
        if op(node) in ("cat", "stack") and len(operands(node)) >= len(contexts):
            reached: set[Node] = set()
            for part in operands(node):
                reached |= _unlearned(dependence, part) & set(contexts)
            if len(reached) == len(contexts):
                return True
    return False


def _unlearned(dependence: Dependence, node: Node) -> set[Node]:
    """Return what `node` is made of by layout and sums alone."""
    seen: set[Node] = set()
    front = [node]
    while front:
        one = front.pop()
        if one in seen:
            continue
        seen.add(one)
        if op(one) in PLAIN:
            front += operands(one)
    return seen


def _places(node: Node) -> tuple[object, ...]:
    return tuple(frame.span for frame in stack_of(node))
