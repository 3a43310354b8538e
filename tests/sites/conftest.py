"""Record a function or module and look at its sites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, fx

from mha_lint.capture import Recording, Replay, record
from mha_lint.facts.bench import Bench

Find: TypeAlias = Callable[..., Bench]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def recorded() -> Callable[..., Recording]:
    """Record a call; the recording must hold on fresh inputs."""

    def run(subject: Any, *args: Any, names: tuple[str, ...] = ()) -> Recording:
        recording = record(subject, args, {}, argument_names=names)
        assert recording.faithful.ok, recording.faithful
        return recording

    return run


@pytest.fixture
def found(recorded: Callable[..., Recording]) -> Find:
    """Record a call and find its sites."""
    return lambda subject, *args, **names: Bench.of(recorded(subject, *args, **names))


@pytest.fixture
def replayed(recorded: Callable[..., Recording]) -> Callable[..., tuple[Replay, fx.Node, fx.Node]]:
    """Record ``function(x)``: the replay, the node of x and the node of the result."""

    def run(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Replay, fx.Node, fx.Node]:
        recording = recorded(function, x)
        return Replay(recording), recording.placeholders[0], recording.outputs[0]

    return run
