"""A recorded graph as a flat list of steps over numbered slots, and which of them a run needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mha_lint.capture.names import RANDOM
from mha_lint.capture.precision import Precision

Values = list[Any]
Run = Callable[[Values], Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One call: its slot, the slots it reads, and whether it may draw random numbers."""

    slot: int
    reads: tuple[int, ...]
    run: Run
    random: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of one run, in order, and the slots that it takes from the base values."""

    steps: tuple[Step, ...]
    needed: tuple[int, ...]
    random: bool


class Program:
    """The steps of one graph at one precision; shared by all replays of it."""

    def __init__(self, graph: fx.Graph, precision: Precision) -> None:
        """Compile each call of `graph`."""
        nodes = list(graph.nodes)
        self.slots: dict[fx.Node, int] = {n: i for i, n in enumerate(nodes)}
        self.drawn = [n for n in nodes if n.op == "call_function" and is_drawn(n)]
        """Nodes whose recorded value is a constant."""
        fixed = set(self.drawn)
        self.steps: list[Step | None] = [
            self._step(n, precision) if n.op == "call_function" and n not in fixed else None
            for n in nodes
        ]
        self._plans: dict[tuple[tuple[int, ...], tuple[int, ...]], Plan] = {}

    def plan(self, given: tuple[int, ...], wanted: tuple[int, ...]) -> Plan:
        """Return what lies below the slots `given` and above `wanted`."""
        known = self._plans.get((given, wanted))
        if known is None:
            known = self._plans[given, wanted] = self._planned(set(given), wanted)
        return known

    def above(self, wanted: Iterable[int], stop: Callable[[int], bool]) -> list[int]:
        """Return `wanted` and all slots that they depend on, in order, not past those at `stop`."""
        found: set[int] = set()
        pending = [s for s in wanted if not stop(s)]
        while pending:
            slot = pending.pop()
            if slot in found:
                continue
            found.add(slot)
            step = self.steps[slot]
            if step is not None:
                pending.extend(r for r in step.reads if r not in found and not stop(r))
        return sorted(found)

    def _planned(self, given: set[int], wanted: tuple[int, ...]) -> Plan:
        moved = set(given)
        steps: list[Step] = []
        needed = set(wanted)
        first = min(given, default=len(self.steps))  # what stands before it is not moved
        for slot in self.above(wanted, lambda s: s < first or s in given):
            step = self.steps[slot]
            if step is not None and any(r in moved for r in step.reads):
                moved.add(slot)
                steps.append(step)
                needed.update(step.reads)
        return Plan(tuple(steps), tuple(sorted(needed - moved)), any(s.random for s in steps))

    def _step(self, node: fx.Node, precision: Precision) -> Step:
        reads = tuple(self.slots[n] for n in node.all_input_nodes)
        run = self._compiled(*precision.call(node))
        return Step(self.slots[node], reads, run, node.meta["op"] in RANDOM)

    def _compiled(
        self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Run:
        """Return the call as a function of all values, in the quickest form that serves it."""
        if any(_holds_node(v) for v in kwargs.values()) or any(
            _holds_node(a) and not isinstance(a, fx.Node) for a in args
        ):
            return self._nested(target, args, kwargs)
        slots = [self.slots[a] if isinstance(a, fx.Node) else None for a in args]
        head = slots[0] if slots else None
        if head is not None and not any(s is not None for s in slots[1:]):
            rest = args[1:]
            return lambda values: target(values[head], *rest, **kwargs)
        if head is not None and len(slots) == 2 and not kwargs:
            second: Any = slots[1]
            return lambda values: target(values[head], values[second])
        pairs = list(zip(slots, args, strict=True))
        return lambda values: target(*[a if s is None else values[s] for s, a in pairs], **kwargs)

    def _nested(
        self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Run:
        def run(values: Values) -> Any:
            named = {k: self._filled(v, values) for k, v in kwargs.items()}
            return target(*[self._filled(a, values) for a in args], **named)

        return run

    def _filled(self, template: Any, values: Values) -> Any:
        """Return `template` with the value of each node in its place."""
        if isinstance(template, fx.Node):
            return values[self.slots[template]]
        if isinstance(template, list):
            return [self._filled(t, values) for t in template]
        if isinstance(template, tuple) and not isinstance(template, torch.Size):
            return tuple([self._filled(t, values) for t in template])
        if isinstance(template, dict):
            return {k: self._filled(v, values) for k, v in template.items()}
        if isinstance(template, slice):
            parts = (template.start, template.stop, template.step)
            return slice(*(self._filled(p, values) for p in parts))
        return template


def is_drawn(node: fx.Node) -> bool:
    """Return whether `node` draws from a generator of the user's own, and from nothing else.

    The call that was recorded has used that generator up, so what it gave is a constant.
    """
    if node.all_input_nodes:
        return False
    return any(isinstance(v, torch.Generator) for v in (*node.args, *node.kwargs.values()))


def _holds_node(value: Any) -> bool:
    if isinstance(value, fx.Node):
        return True
    if isinstance(value, (tuple, list)):
        return any(_holds_node(v) for v in value)
    if isinstance(value, dict):
        return any(_holds_node(v) for v in value.values())
    if isinstance(value, slice):
        return any(_holds_node(v) for v in (value.start, value.stop, value.step))
    return False
