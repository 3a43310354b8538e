"""Where the scores of a site stand before anything is done to them."""

from __future__ import annotations

from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.sites.dependence import is_number, operands
from mha_lint.sites.site import Site


def first_scores(bench: Bench, site: Site) -> Node:
    """Return the node of the scores: the product, or where additive scores become one number each.

    Where there is no product of queries and keys, it is looked for above the normaliser: the
    furthest node from which one tensor of that many numbers passes, joined by nothing learned.
    """
    if site.score is not None:
        return site.score.node
    node = site.normaliser.logits
    while (before := _passed(bench, node)) is not None:
        node = before
    return node


def _passed(bench: Bench, node: Node) -> Node | None:
    """Return the one operand of `node` that carries the scores, None where they are made there."""
    dependence, recording = bench.dependence, bench.recording
    if bench.finder.sources.contraction(node) is not None:
        return None
    size = recording.values[node].numel()
    same = [
        n
        for n in operands(node)
        if is_number(recording, n) and dependence.on_data(n) and recording.values[n].numel() == size
    ]
    if len(same) > 1:  # a mask that came as an argument has no parameter behind it
        same = [n for n in same if dependence.parameters(n)]
    if len(same) != 1:
        return None
    others = [n for n in operands(node) if n is not same[0]]
    learned = any(dependence.parameters(n) for n in others)
    return None if learned or recording.values[same[0]].dim() < 2 else same[0]
