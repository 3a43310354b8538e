"""Attention that hides everything in the recorded call, and the mask that does it.

Nothing can be measured through such a softmax, so that its site is found without scores. Which way
round the mask is read shows all the same: the other way round some key is visible.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.joins import meeting_in
from mha_lint.facts.masks.levels import HIDES
from mha_lint.facts.masks.roots import Root, roots_among, whole
from mha_lint.sites.dependence import is_number, operands
from mha_lint.sites.site import Site


@dataclass(frozen=True, slots=True, eq=False)
class Closed:
    """A root that hides every key as it is, and how it is read; ``join``: where it meets the scores,
    ``meeting``: another mask."""

    root: Root
    reads: str
    join: Node | None
    meeting: Node | None


def closed_by(bench: Bench, site: Site) -> list[Closed]:
    """Return the roots that hide every key of `site` (a member without a score), as they are."""
    logits = site.normaliser.logits
    if not is_number(bench.recording, logits) or not _is_closed(bench.replay.base(logits)):
        return []
    found = []
    for root in roots_among(bench, bench.dependence.ancestors([logits])):
        if root.additive:
            continue
        closed = {
            name: _is_closed(bench.replay.run([logits], {root.node: whole(bench, root, value)})[0])
            for name, value in (("hide", root.on), ("keep", root.off))
        }
        if closed["hide"] != closed["keep"]:
            reads = "hide" if closed["hide"] else "keep"
            between = set(bench.dependence.between(root.node, logits))
            masks = {n for n in between if not bench.dependence.parameters(n)}
            meeting = meeting_in(bench, masks, root.node)
            found.append(Closed(root, reads, _join(bench, root, logits), meeting))
    return found


def _is_closed(logits: Tensor) -> bool:
    return bool(((logits <= -HIDES) | logits.isnan()).all())


def _join(bench: Bench, root: Root, logits: Node) -> Node | None:
    below = bench.dependence.descendants([root.node])
    for node in (*bench.dependence.between(root.node, logits),):
        others = [n for n in operands(node) if n not in below and is_number(bench.recording, n)]
        if any(bench.dependence.parameters(n) for n in others):
            return node
    return None
