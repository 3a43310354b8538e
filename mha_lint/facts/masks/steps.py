"""The steps at which something else than the scores acts on the way from the scores to V."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.played import Runs
from mha_lint.facts.masks.upstream import first_scores
from mha_lint.sites.dependence import is_number, is_tensor, op, operands
from mha_lint.sites.site import Site

STEP = 1e-3
"""How far the scores are pushed to see which elements follow."""
SAME = 1e-9
PRODUCTS = frozenset(["mul", "div", "floor_divide", "einsum", "matmul", "bmm"])
SUMS = frozenset(["add", "sub", "baddbmm", "addmm"])
BY_PLACE = frozenset(["tril", "triu", "setitem", "index_fill", "fill_diagonal", "index_put"])
"""What treats elements by their place, and needs no other tensor for that."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operation that joins the scores (or weights) with another tensor.

    ``before``: it acts ahead of the sum that normalises; ``inside``: but behind the exponential
    of a softmax written out. ``data``: the operand that carries the scores (of ``baddbmm``, which
    makes and masks them at once, `node` itself); ``sides``: its other tensor operands. Measured, in
    the shape of `node`: ``gain``, by how much the result follows `data` (0: filled; 1: as it was or
    added to), ``offset``, what is added to that. For a filled element the offset is the fill.
    ``place``: where a mask that came with a learned bias was added to that, else `node`.
    """

    node: Node
    before: bool
    data: Node
    sides: tuple[Node, ...]
    gain: Tensor
    offset: Tensor
    inside: bool = False
    joined: Node | None = None

    @property
    def place(self) -> Node:
        """Return the operation that a reader looks for."""
        return self.joined if self.joined is not None else self.node

    @property
    def how(self) -> str:
        """Return "multiplied", "added" or "filled": what the operation does with its operands."""
        if op(self.node) in PRODUCTS:
            return "multiplied"
        return "added" if op(self.node) in SUMS else "filled"

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
        """Return whether it is a product, whose elements follow the scores by different factors."""
        if self.how != "multiplied" or not self.gain.numel():
            return False
        return bool((self.gain - self.gain.flatten()[0]).abs().max() > SAME)


_KNOWN: WeakKeyDictionary[Replay, dict[int, tuple[Step, ...]]] = WeakKeyDictionary()


def steps_of(bench: Bench, site: Site) -> tuple[Step, ...]:
    """Return the steps of `site`, a single site or a member of a group, in recorded order."""
    known = _KNOWN.setdefault(bench.replay, {})
    if id(site) not in known:
        known[id(site)] = measured_steps(bench, site, bench.replay)
    return known[id(site)]


def measured_steps(bench: Bench, site: Site, replay: Runs) -> tuple[Step, ...]:
    """Return the steps of `site` as `replay` runs it."""
    found: list[Step] = []
    normaliser = site.normaliser
    first = first_scores(bench, site)
    if site.score is not None and op(site.score.node) in SUMS:
        step = _with_product(bench, site, replay)
        found += [step] if step is not None else []
    for start, end, before, inside in (
        (first, normaliser.logits, True, False),
        (normaliser.logits, normaliser.weights, True, True),
        (normaliser.weights, site.weights, False, False),
    ):
        if start is end:
            continue
        found += [
            step
            for node in bench.dependence.between(start, end)
            if (step := _step(bench, replay, node, start, before=before, inside=inside)) is not None
        ]
    return tuple(found)


def _step(
    bench: Bench, replay: Runs, node: Node, start: Node, *, before: bool, inside: bool
) -> Step | None:
    carried = bench.dependence.descendants([start])
    if not is_number(bench.recording, node):
        return None
    data = [n for n in operands(node) if n in carried and is_number(bench.recording, n)]
    sides = [n for n in operands(node) if n not in carried and is_tensor(bench.recording, n)]
    if len(data) != 1:
        return None
    if op(node) not in BY_PLACE and all(replay.base(n).numel() < 2 for n in sides):
        return None
    at, there = replay.base(data[0]), replay.base(node)
    if at.numel() != there.numel() or at.squeeze().shape != there.squeeze().shape:
        return None
    finite = torch.where(torch.isfinite(at), at, torch.zeros_like(at))
    low, high = (replay.run([node], {data[0]: finite * 0 + by})[0] for by in (0.0, STEP))
    gain = torch.nan_to_num((high - low) / STEP, nan=0.0)
    gain = torch.where(gain.abs() < SAME, torch.zeros_like(gain), gain)
    return Step(node, before, data[0], tuple(sides), gain, low, inside)


def _with_product(bench: Bench, site: Site, replay: Runs) -> Step | None:
    """Return what ``baddbmm`` adds to the product of queries and keys as a step."""
    score = site.score
    assert score is not None
    added = score.node.args[0]
    if not isinstance(added, Node) or not is_tensor(bench.recording, added):
        return None
    if score.node.kwargs.get("beta", 1) == 0:
        return None  # the operand is a buffer that was never set
    left = replay.base(score.left)
    (rest,) = replay.run([score.node], {score.left: torch.zeros_like(left)})
    rest = torch.as_tensor(rest)
    gain = torch.isfinite(rest).to(rest.dtype)
    return Step(score.node, True, score.node, (added,), gain, rest)
