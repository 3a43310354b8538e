"""Run a recording again with other inputs, parameters and precision, or with values put in place.

A run with substitutes recomputes only what lies between them and what is asked for; all else comes
from the base run, which is computed when needed and kept. So a check can afford hundreds of runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from mha_lint.capture.precision import Precision
from mha_lint.capture.program import Program, Step, Values
from mha_lint.capture.recording import Recording
from mha_lint.capture.state import seed_torch


class Replay:
    """Replays one recording on fixed inputs and parameters."""

    def __init__(
        self,
        recording: Recording,
        *,
        inputs: Sequence[torch.Tensor] | None = None,
        parameters: Mapping[str, torch.Tensor] | None = None,
        constants: Mapping[fx.Node, torch.Tensor] | None = None,
        dtype: torch.dtype | None = torch.float64,
        device: str | torch.device = "cpu",
        seed: int = 0,
    ) -> None:
        """Take `inputs` in the order of the placeholders (default: the recorded ones) and
        `parameters` by qualified name (default: the recorded ones). `constants` gives other values
        to nodes that hold what existed before the call.

        With `dtype` None all runs in the recorded types; otherwise everything floating is `dtype`,
        and the casts of the recording follow. Random numbers depend on `seed` and the node alone.
        """
        self.recording = recording
        self.dtype = dtype
        self.device = torch.device(device)
        self._precision = Precision(dtype, self.device)
        self._seed = seed
        key = (dtype, str(self.device))
        program = recording.programs.get(key)
        if program is None:
            program = recording.programs[key] = Program(recording.graph, self._precision)
        self._program: Program = program
        self._slots = self._program.slots
        self._base: Values = [_MISSING] * len(self._slots)
        given = list(inputs) if inputs is not None else list(recording.inputs)
        if len(given) != len(recording.placeholders):
            raise ValueError(f"{len(recording.placeholders)} inputs are needed, not {len(given)}")
        for node, value in zip(recording.placeholders, given, strict=True):
            self._base[self._slots[node]] = self._precision.tensor(value)
        for node in program.drawn:
            self._base[self._slots[node]] = self._precision.result(recording.values[node])
        chosen = parameters or {}
        for node in recording.graph.find_nodes(op="get_attr"):
            value = chosen.get(node.meta.get("parameter", ""), recording.values[node])
            value = (constants or {}).get(node, value)
            self._base[self._slots[node]] = self._precision.tensor(value)

    def base(self, node: fx.Node) -> Any:
        """Return the value of `node` without any substitution."""
        slot = self._slots[node]
        if self._base[slot] is _MISSING:
            self._fill((slot,))
        return self._base[slot]

    def run(
        self, wanted: Sequence[fx.Node], substitute: Mapping[fx.Node, torch.Tensor]
    ) -> list[Any]:
        """Return the values of `wanted` when the nodes in `substitute` have the given values."""
        places = tuple(self._slots[n] for n in substitute)
        targets = tuple(self._slots[n] for n in wanted)
        plan = self._program.plan(places, targets)
        missing = [s for s in plan.needed if self._base[s] is _MISSING]
        if missing:
            self._fill(missing)
        values = list(self._base)
        for slot, value in zip(places, substitute.values(), strict=True):
            values[slot] = self._precision.tensor(value)
        with self._running(random=plan.random):
            for step in plan.steps:
                values[step.slot] = self._computed(step, values)
        return [values[s] for s in targets]

    def in_order(self, wanted: Sequence[fx.Node]) -> list[Any]:
        """Run every step in the recorded order on the present stream of random numbers."""
        values = list(self._base)
        with self._running(random=False):
            for step in self._program.steps:
                if step is not None:
                    values[step.slot] = self._precision.result(step.run(values))
        return [values[self._slots[n]] for n in wanted]

    def _fill(self, wanted: Sequence[int]) -> None:
        """Compute the base values of the slots `wanted` and all that they need."""
        base = self._base
        order = self._program.above(wanted, lambda s: base[s] is not _MISSING)
        steps = [step for s in order if (step := self._program.steps[s]) is not None]
        with self._running(random=any(s.random for s in steps)):
            for step in steps:
                base[step.slot] = self._computed(step, base)

    def _computed(self, step: Step, values: Values) -> Any:
        if step.random:
            seed_torch(self._seed + 1 + step.slot)
        return self._precision.result(step.run(values))

    @contextmanager
    def _running(self, *, random: bool) -> Iterator[None]:
        """Set the default dtype, and keep the caller's random numbers where any are drawn.

        One thread: sums then come out the same each time, and small ones come out sooner.
        """
        default, threads = torch.get_default_dtype(), torch.get_num_threads()
        if threads != 1:
            torch.set_num_threads(1)
        generator = torch.get_rng_state() if random else None
        if self.dtype is not None:
            torch.set_default_dtype(self.dtype)
        try:
            with torch.no_grad():
                yield
        finally:
            torch.set_default_dtype(default)
            if threads != 1:
                torch.set_num_threads(threads)
            if generator is not None:
                torch.set_rng_state(generator)


class _Missing:
    """Marks a base value that was not computed yet."""


_MISSING = _Missing()
