"""Inputs, outputs and the tensors that exist before a call have names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mha_lint.capture import Recording

Recorded = Callable[..., Recording]


@dataclass
class Batch:
    """Inputs in an object."""

    x: torch.Tensor
    keep: dict[str, torch.Tensor]


class Result:
    """Outputs in an object."""

    def __init__(self, y: Any, weights: Any) -> None:
        self.y = y
        self.more = [weights, "text", None]


def test_objects_in_and_out(recorded: Recorded) -> None:
    def forward(batch: Any, *rest: Any, scale: Any) -> Any:
        w = (batch.x @ batch.x.mT * scale).softmax(-1)
        return Result((w @ batch.x) * batch.keep["a"] + rest[0], w)

    batch = Batch(torch.randn(2, 3, 4), {"a": torch.rand(2, 3, 1)})
    recording = recorded(forward, batch, torch.randn(4), scale=torch.tensor(0.5))
    assert recording.input_names == ("batch.x", "batch.keep['a']", "args[1]", "scale")
    assert recording.output_names == (".y", ".more[0]")
    assert [n.meta["op"] for n in recording.outputs] == ["add", "softmax"]


def test_one_tensor_under_several_names_is_one_input(recorded: Recorded) -> None:
    def forward(query: Any, key: Any, value: Any) -> Any:
        return (query @ key.mT).softmax(-1) @ value

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    recording = recorded(forward, x, y, y)
    assert recording.input_names == ("query", "key")
    assert recording.placeholders[1].meta["aliases"] == ("key", "value")


SCALES = [torch.tensor(8.0), torch.tensor(2.0)]
PROJECTION = nn.Linear(4, 4)


class Constants(nn.Module):
    table = torch.linspace(0, 1, 4)

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.tensor(8.0).sqrt()
        self.parts = [torch.ones(4), torch.zeros(4)]
        self.heads = [nn.Linear(4, 4)]
        self.register_buffer("shift", torch.ones(4))
        self.weight = nn.Parameter(torch.ones(4))
        self.fixed = nn.Parameter(torch.ones(4), requires_grad=False)

    def project(self, x: Any) -> Any:
        return x * self.weight

    def forward(self, x: Any) -> Any:
        x = x / self.scale + self.parts[1] + self.shift + self.weight * self.fixed
        return self.heads[0](x) * SCALES[0] + self.table


def test_tensors_that_exist_before_the_call_are_named(recorded: Recorded) -> None:
    recording = recorded(Constants(), torch.randn(3, 4))
    attributes = [n for n in recording.graph.nodes if n.op == "get_attr"]
    names = {n.meta.get("constant") for n in attributes} - {None}
    assert names == {
        "scale", "parts[1]", "heads[0].weight", "heads[0].bias", "SCALES", "Constants.table",
    }  # fmt: skip
    assert [n.meta["buffer"] for n in attributes if "buffer" in n.meta] == ["shift"]
    assert set(recording.parameters) == {"weight", "fixed"}
    assert recording.parameters["weight"].meta["trainable"]
    assert not recording.parameters["fixed"].meta["trainable"]
    assert not any("tainted" in n.meta for n in recording.graph.nodes)


def test_a_function_knows_the_modules_that_it_uses(recorded: Recorded) -> None:
    inner = nn.Linear(4, 4)

    def attend(q: Any, k: Any) -> Any:
        return (inner(q) @ PROJECTION(k).mT).softmax(-1)

    recording = recorded(attend, torch.randn(3, 4), torch.randn(3, 4))
    assert set(recording.parameters) == {
        "inner.weight", "inner.bias", "PROJECTION.weight", "PROJECTION.bias",
    }  # fmt: skip
    assert recording.module is None


def test_a_method_knows_its_module(recorded: Recorded) -> None:
    recording = recorded(Constants().project, torch.randn(2, 4))
    assert set(recording.parameters) == {"weight"}


def test_functional_call_with_other_parameters(recorded: Recorded) -> None:
    module = nn.Linear(4, 4)

    def forward(x: Any) -> Any:
        return torch.func.functional_call(module, dict(module.named_parameters()), (x,))

    recording = recorded(forward, torch.randn(2, 4))
    assert set(recording.parameters) == {"module.weight", "module.bias"}
