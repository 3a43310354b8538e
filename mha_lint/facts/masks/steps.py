"""The steps at which something else than the scores acts on the way from the scores to V."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.facts.bench import Bench
from mha_lint.sites.dependence import is_number, is_tensor, operands
from mha_lint.sites.site import Site

STEP = 1e-3
"""How far the scores are pushed to see which elements follow."""
SAME = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operation that joins the scores (or weights) with another tensor.

    ``before``: it acts on the scores, else on the weights. ``data``: the operand that carries the
    scores; ``sides``: its other tensor operands. Measured, in the shape of `node`: ``gain``, by how
    much the result follows `data` (0: filled; 1: as it was or added to), ``offset``, what is added
    to that. For a filled element the offset is the fill.
    """

    node: Node
    before: bool
    data: Node
    sides: tuple[Node, ...]
    gain: Tensor
    offset: Tensor

    @property
    def fills(self) -> bool:
        """Return whether some elements no longer follow the scores."""
        return bool((self.gain == 0).any())

    @property
    def adds(self) -> bool:
        """Return whether it adds something to elements that still follow the scores."""
        return bool(((self.gain != 0) & (self.offset.abs() > SAME)).any())

    @property
    def multiplies(self) -> bool:
        """Return whether elements follow the scores by different factors, 0 among them."""
        return bool(self.gain.numel()) and bool(
            (self.gain - self.gain.flatten()[0]).abs().max() > SAME
        )


_KNOWN: WeakKeyDictionary[Replay, dict[int, tuple[Step, ...]]] = WeakKeyDictionary()


def steps_of(bench: Bench, site: Site) -> tuple[Step, ...]:
    """Return the steps of `site`, a single site or a member of a group, in recorded order."""
    known = _KNOWN.setdefault(bench.replay, {})
    if id(site) not in known:
        known[id(site)] = tuple(
            step
            for start, end, before in (
                (site.scores, site.normaliser.logits, True),
                (site.normaliser.weights, site.weights, False),
            )
            if start is not end
            for node in bench.dependence.between(start, end)
            if (step := _step(bench, node, start, before=before)) is not None
        )
    return known[id(site)]


def _step(bench: Bench, node: Node, start: Node, *, before: bool) -> Step | None:
    carried = bench.dependence.descendants([start])
    if not is_number(bench.recording, node):
        return None
    data = [n for n in operands(node) if n in carried and is_number(bench.recording, n)]
    sides = [n for n in operands(node) if n not in carried and is_tensor(bench.recording, n)]
    if len(data) != 1 or not sides or all(bench.replay.base(n).numel() < 2 for n in sides):
        return None
    at, there = bench.replay.base(data[0]), bench.replay.base(node)
    if at.numel() != there.numel() or at.squeeze().shape != there.squeeze().shape:
        return None
    finite = torch.where(torch.isfinite(at), at, torch.zeros_like(at))
    low, high = (bench.replay.run([node], {data[0]: finite * 0 + by})[0] for by in (0.0, STEP))
    gain = torch.nan_to_num((high - low) / STEP, nan=0.0)
    gain = torch.where(gain.abs() < SAME, torch.zeros_like(gain), gain)
    return Step(node, before, data[0], tuple(sides), gain, low)
