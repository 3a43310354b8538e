"""The recorded call played again, in float64, with masks that hide something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Recording, Replay
from mha_lint.facts.bench import FEW, MANY, Bench
from mha_lint.sites.dependence import is_tensor, operands

LOUD = 60.0
"""The factor of inputs that make scores large."""


class Runs(Protocol):
    """What a recording can be run by: a replay, or one with some values put in place for good."""

    def base(self, node: Node) -> Any:
        """Return the value of `node`."""

    def run(self, wanted: Sequence[Node], substitute: Mapping[Node, Tensor]) -> list[Any]:
        """Return the values of `wanted` with others in the place of some."""


class Played:
    """A replay in which some nodes always have the values of ``given``."""

    def __init__(self, bench: Bench, replay: Replay, given: Mapping[Node, Tensor]) -> None:
        """Nothing is run yet."""
        self.replay = replay
        self.given = dict(given)
        self._below = bench.dependence.descendants(given)
        self._values: dict[Node, Any] = {}

    def base(self, node: Node) -> Any:
        """Return the value of `node`."""
        if node not in self._below:
            return self.replay.base(node)
        if node not in self._values:
            self._values[node] = self.run([node], {})[0]
        return self._values[node]

    def run(self, wanted: Sequence[Node], substitute: Mapping[Node, Tensor]) -> list[Any]:
        """Return the values of `wanted` with others in the place of some."""
        return self.replay.run(wanted, {**self.given, **substitute})


_REAL: WeakKeyDictionary[Recording, dict[float, Replay]] = WeakKeyDictionary()


def recorded_call(bench: Bench, times: float = 1.0) -> Replay:
    """Return the recorded call in float64: own inputs and parameters, float inputs multiplied."""
    recording = bench.recording
    known = _REAL.setdefault(recording, {})
    if times not in known:
        inputs = [
            x * times if x.is_floating_point() and not _is_flag(x) else x for x in recording.inputs
        ]
        known[times] = Replay(recording, inputs=inputs)
    return known[times]


def hiding_values(bench: Bench, sides: Iterable[Node], ends: Iterable[Node]) -> dict[Node, Tensor]:
    """Return, for masks above `sides` that are one value throughout, others that hide a part.

    How a mask acts does not depend on what it hides, so that one of ones can be judged as well.
    Taken are the first truth values on the way, else arguments of ones. ``ends``: what all masks of
    the site end in; none of them may know the mask by another way.
    """
    recording, dependence = bench.recording, bench.dependence
    above = dependence.ancestors(sides)
    level = [n for n in above if is_tensor(recording, n) and _is_level(recording.values[n])]
    truths = {n for n in level if recording.values[n].dtype == torch.bool}
    first = {n for n in truths if not any(m in truths for m in operands(n))}
    chosen = first or {n for n in level if _is_ones(recording, n)}
    if _told_otherwise(bench, chosen, ends):
        return {}
    order = dependence.order
    return {n: _pattern(recording.values[n]) for n in sorted(chosen, key=order.__getitem__)}


def _told_otherwise(bench: Bench, chosen: set[Node], ends: Iterable[Node]) -> bool:
    """Return whether something in `ends` reads what `chosen` are made from, but not through them."""
    dependence = bench.dependence
    roots = [n for n in dependence.ancestors(chosen) if n.op == "placeholder" and n not in chosen]
    seen: set[Node] = set()
    front = list(roots)
    while front:
        node = front.pop()
        if node not in seen and node not in chosen:
            seen.add(node)
            front += dependence.users(node)
    return bool(seen & set(ends))


def _is_flag(x: Tensor) -> bool:
    return len(set(x.flatten()[:MANY].tolist())) <= FEW


def _is_level(value: Tensor) -> bool:
    return value.numel() > 1 and bool((value == value.reshape(-1)[0]).all())


def _is_ones(recording: Recording, node: Node) -> bool:
    return node.op == "placeholder" and bool((recording.values[node] == 1).all())


def _pattern(value: Tensor) -> Tensor:
    """Return `value` with the other truth at about half of the places, never at the first ones."""
    generator = torch.Generator().manual_seed(17)
    other = torch.rand(value.shape, generator=generator) < 0.5
    if value.dim():
        other.select(-1, 0).fill_(False)
        other.select(-1, -1).fill_(value.shape[-1] > 1)
    if value.dtype == torch.bool:
        return value ^ other
    return value * (~other).to(value.dtype)
