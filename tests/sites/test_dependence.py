"""What depends on what: values count, shapes do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mha_lint.capture import Recording
from mha_lint.sites.dependence import Dependence, is_number, is_tensor, op, operands, shape

Record = Callable[..., Recording]


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(4, 4)
        self.bias = nn.Parameter(torch.randn(4))
        self.register_buffer("table", torch.randn(4))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        mapped = self.map(x)
        weight = self.bias.exp()
        blank = torch.zeros_like(y)
        dead = y.sum()
        del dead
        return mapped * weight + blank + self.table


def node(recording: Recording, name: str) -> Any:
    (one,) = [n for n in recording.graph.nodes if op(n) == name]
    return one


def test_of_one_module(recorded: Record) -> None:
    recording = recorded(Gate(), torch.randn(2, 4), torch.randn(2, 4), names=("x", "y"))
    found = Dependence(recording)
    mapped, weight = node(recording, "linear"), node(recording, "exp")
    blank, dead = node(recording, "zeros_like"), node(recording, "sum")
    product = node(recording, "mul")
    assert found.on_data(mapped) and not found.on_data(weight)
    assert not found.on_data(blank)
    assert found.learned_only(weight)
    assert not found.learned_only(mapped) and not found.learned_only(blank)
    assert found.parameters(mapped) == {"map.weight", "map.bias"}
    assert found.parameters(product) == {"map.weight", "map.bias", "bias"}
    assert found.parameters(blank) == frozenset()
    assert found.inputs_of(product) == {"x"}
    assert found.inputs_of(dead) == {"y"}
    assert dead not in found.live and mapped in found.live
    assert operands(blank) == []
    assert found.users(weight) == [product]


def test_paths_are_in_recorded_order(recorded: Record) -> None:
    recording = recorded(lambda x: ((x * 2) + x.exp()).sum(), torch.randn(3))
    found = Dependence(recording)
    (x,) = recording.placeholders
    assert [op(n) for n in found.between(x, recording.outputs[0])] == ["mul", "exp", "add", "sum"]
    exp, add = node(recording, "exp"), node(recording, "add")
    assert [op(n) for n in found.between(exp, add)] == ["add"]
    assert found.between(add, exp) == []
    assert set(found.ancestors([exp])) == {x, exp}
    assert {op(n) for n in found.descendants([exp])} >= {"exp", "add", "sum"}


def test_values_of_nodes(recorded: Record) -> None:
    recording = recorded(lambda x: x[x.argmax()] + x.size(0), torch.randn(5))
    argmax = node(recording, "argmax")
    assert is_tensor(recording, argmax) and not is_number(recording, argmax)
    (x,) = recording.placeholders
    assert is_number(recording, x)
    assert shape(recording, x) == (5,)


def test_bottlenecks_are_what_every_path_passes(recorded: Record) -> None:
    recording = recorded(lambda x: (x * 2 - (x * 2).cumsum(-1)).exp(), torch.randn(3))
    found = Dependence(recording)
    (x,) = recording.placeholders
    (out,) = recording.outputs
    assert [op(n) for n in found.bottlenecks(x, out)] == ["sub", "exp"]
    assert [op(n) for n in found.bottlenecks(node(recording, "sub"), out)] == ["exp"]
    assert found.bottlenecks(out, x) == []


def test_data_that_picks(recorded: Record) -> None:
    x = torch.randn(3, 4)
    assert Dependence(recorded(lambda x: x.gather(1, x.argsort(1)), x)).picks
    assert Dependence(recorded(lambda x: x * (x > 0), x)).picks
    hidden = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]).bool()
    assert Dependence(recorded(lambda x, m: x[m], x, hidden)).picks

    def filled(x: Tensor, m: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[m] = torch.arange(1.0, 4.0)
        return x + y

    assert Dependence(recorded(filled, x, hidden)).picks
    assert not Dependence(recorded(lambda x, m: x.masked_fill(m, 0.0), x, hidden)).picks
    assert Dependence(recorded(lambda x: x.gather(1, x.topk(2).indices), x)).picks
    assert not Dependence(recorded(lambda x: x.topk(2).values, x)).picks
    assert not Dependence(recorded(lambda x: x[torch.arange(2)], x)).picks
    places = torch.tensor([0, 2])
    assert not Dependence(recorded(lambda x, at: x[at], x, places, names=("x", "at"))).picks
