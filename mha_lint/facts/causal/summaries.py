"""Summaries of a whole sequence that a caller asks for, which what follows may then read.

An autoencoder returns the latent (or its mean and variance, or what it costs) that its decoder is
given: that later positions reach earlier ones by it is what it is for.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.causal.mixing import Mixed
from mha_lint.facts.causal.rows import aligned_axis, axis_moves, contexts
from mha_lint.facts.influence import changed, some
from mha_lint.sites.dependence import is_number


def comes_by_a_returned_summary(bench: Bench, found: Mixed) -> bool:
    """Return whether later positions join at `found` only through a summary that is returned as well."""
    axis = found.entry.axis
    if axis is None:
        return False
    positions = some(int(bench.replay.base(found.entry.node).shape[axis]))
    held = _returned(bench, found, positions)
    if not held:
        return False
    hold = [n for n in contexts(bench) if n is not found.entry.node]
    _, (change,) = changed(bench, found.entry, [found.node], positions, [*hold, *held])
    rows = aligned_axis(positions, change)
    if rows is None:
        return not bool((change > 0).any())
    length = int(bench.replay.base(found.entry.node).shape[axis])
    return axis_moves(positions, change, rows, length).early() is None


def _returned(bench: Bench, found: Mixed, positions: list[int]) -> list[Node]:
    """Return the summaries that an output is made from which is not made behind the join."""
    behind = bench.dependence.descendants([found.node]) | {found.node}
    outputs = [
        n for n in bench.recording.outputs if is_number(bench.recording, n) and n not in behind
    ]
    above = [n for out in outputs for n in bench.dependence.between(found.entry.node, out)]
    path = [n for n in dict.fromkeys([*above, *outputs]) if is_number(bench.recording, n)]
    path = [n for n in path if n is not found.entry.node]
    _, changes = changed(bench, found.entry, path, positions)
    moved = dict(zip(path, changes, strict=True))
    if not any(_is_summary(positions, moved[n]) for n in outputs):
        return []
    return [n for n in path if _is_summary(positions, moved[n])]


def _is_summary(positions: list[int], change: Tensor) -> bool:
    """Return whether all positions move the same elements, and none of them a row of its own most."""
    hit = change > 0
    same = bool(torch.equal(hit, hit[:1].expand_as(hit))) and bool(hit.any())
    return same and aligned_axis(positions, change) is None
