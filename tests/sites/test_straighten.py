"""Layers of one's own read as torch's do: maps of joined positions, and lines inside small layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mha_lint.capture import Recording, Replay
from mha_lint.sites.dependence import Dependence, op, shape
from mha_lint.sites.source import Sources
from mha_lint.sites.straighten import straighten

Record = Callable[..., Recording]
X = torch.randn(2, 5, 6)


class Layer(nn.Module):
    """A linear map in one of several spellings."""

    def __init__(self, spelling: str) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(6, 8))
        self.offset = nn.Parameter(torch.randn(8))
        self.spelling = spelling

    def forward(self, x: Tensor) -> Tensor:
        if self.spelling == "whole":
            return x @ self.kernel + self.offset
        rows = x.reshape(-1, 6)
        if self.spelling == "mm":
            return torch.mm(rows, self.kernel).view(*x.shape[:-1], 8) + self.offset
        if self.spelling == "add":
            return (rows @ self.kernel + self.offset).view(*x.shape[:-1], 8)
        if self.spelling == "linear":
            return nn.functional.linear(rows, self.kernel.t(), self.offset).view(*x.shape[:-1], 8)
        return torch.addmm(self.offset, rows, self.kernel).view(*x.shape[:-1], 8)


class Uses(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(torch.tanh(x)).relu()
        return y


class Mixes(nn.Module):
    """No map of the last axis alone: its lines are those to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(6, 8))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.kernel).view(*x.shape[:-1], 2, 4).transpose(1, 2)


class Activates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(6, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x @ self.kernel)


def line_of(cls: type[Any], offset: int) -> int:
    return int(cls.forward.__code__.co_firstlineno) + offset


@pytest.mark.parametrize("spelling", ["whole", "mm", "add", "linear", "addmm"])
def test_a_map_of_joined_positions_reads_the_tensor_itself(recorded: Record, spelling: str) -> None:
    recording = recorded(Uses(Layer(spelling)), X, names=("x",))
    expected = recording.values[recording.outputs[0]].clone()
    straighten(recording)
    sources = Sources(Dependence(recording))
    (source,) = [s for s in sources.of(recording.outputs[0]) if s.kind == "projection"]
    assert source.reads is not None
    assert op(source.reads) == "tanh"
    assert source.data_axes == (0, 1)
    assert (source.in_width, source.out_width) == (6, 8)
    recording.graph.lint()
    (again,) = Replay(recording, dtype=None).run(recording.outputs, {})
    assert torch.allclose(again, expected, atol=1e-6)
    for node, value in recording.values.items():
        if isinstance(value, Tensor):
            assert shape(recording, node) == tuple(node.meta["shape"])


@pytest.mark.parametrize("spelling", ["whole", "mm", "add", "linear", "addmm"])
def test_a_small_layer_stands_where_it_is_called(recorded: Record, spelling: str) -> None:
    recording = recorded(Uses(Layer(spelling)), X, names=("x",))
    straighten(recording)
    for node in recording.graph.nodes:
        if node.meta.get("module") == "layer" and node.op == "call_function":
            assert node.meta["stack"][-1].span.line == line_of(Uses, 1)
            assert node.meta["own_stack"][-1].function == "Layer.forward"


@pytest.mark.parametrize(("layer", "offset"), [(Mixes, 1), (Activates, 1)])
def test_other_modules_keep_their_lines(
    recorded: Record, layer: type[nn.Module], offset: int
) -> None:
    recording = recorded(Uses(layer()), X, names=("x",))
    straighten(recording)
    lines = {
        n.meta["stack"][-1].span.line
        for n in recording.graph.nodes
        if n.meta.get("module") == "layer" and n.op == "call_function"
    }
    assert lines == {line_of(layer, offset)}


def test_a_flattening_that_mixes_positions_stays(recorded: Record) -> None:
    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(3, 4))

        def forward(self, x: Tensor) -> Tensor:
            return (x.reshape(-1, 3) @ self.kernel).view(2, 5, 8)

    recording = recorded(Joined(), X, names=("x",))
    straighten(recording)
    (node,) = [n for n in recording.graph.nodes if op(n) == "matmul"]
    assert shape(recording, node.all_input_nodes[0]) == (20, 3)
