"""Shared steps of the capture tests: record something, look nodes up, insist on faithfulness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from mha_lint.capture import Recording, record


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def recorded() -> Callable[..., Recording]:
    """Record a call, and insist that the recording holds on fresh inputs."""

    def run(subject: Any, *args: Any, **kwargs: Any) -> Recording:
        recording = record(subject, args, kwargs)
        assert recording.faithful.ok, recording.faithful
        kinds = {n.op for n in recording.graph.nodes}
        assert kinds <= {"placeholder", "get_attr", "call_function", "output"}
        return recording

    return run


@pytest.fixture
def ops() -> Callable[[Recording], list[str]]:
    """Return the names of the recorded calls in order."""

    def names(recording: Recording) -> list[str]:
        return [n.meta["op"] for n in recording.graph.nodes if n.op == "call_function"]

    return names


@pytest.fixture
def only() -> Callable[[Recording, str], fx.Node]:
    """Return the one node with a given name."""

    def find(recording: Recording, op: str) -> fx.Node:
        found: list[fx.Node] = [n for n in recording.graph.nodes if n.meta.get("op") == op]
        assert len(found) == 1, f"{len(found)} nodes named {op}"
        return found[0]

    return find
