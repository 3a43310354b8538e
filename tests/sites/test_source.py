"""What an operand is made from: the nearest learned map, an input, a learned tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from mha_lint.capture import Recording
from mha_lint.sites.dependence import Dependence
from mha_lint.sites.source import Source, Sources

Record = Callable[..., Recording]


class One(nn.Module):
    """Applies a function to itself and x, so that every case owns the same parameters."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.map = nn.Linear(6, 8)
        self.raw = nn.Parameter(torch.randn(6, 8))
        self.heads = nn.Parameter(torch.randn(3, 6, 4))
        self.conv = nn.Conv1d(6, 8, 1)
        self.conv2 = nn.Conv2d(6, 8, 1)
        self.table = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.asks = nn.Parameter(torch.randn(1, 5, 8))
        self.square = nn.Parameter(torch.randn(8, 8))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def source_of(recorded: Record, function: Callable[[Any, Tensor], Tensor], x: Tensor) -> Source:
    recording = recorded(One(function), x, names=("x",))
    found = Sources(Dependence(recording)).of(recording.outputs[0])
    return next((s for s in found if s.kind != "learned"), found[0])


X = torch.randn(2, 5, 6)
MAP = torch.randn(2, 6, 3, 5)


@pytest.mark.parametrize(
    ("function", "x", "names", "channels", "data", "widths"),
    [
        (lambda m, x: m.map(x), X, ("map.weight",), (2,), (0, 1), (6, 8)),
        (lambda m, x: m.norm(m.map(x)).transpose(1, 2) * 2, X, ("map.weight",), (2,), (0, 1), (6, 8)),
        (lambda m, x: x @ m.raw, X, ("raw",), (2,), (0, 1), (6, 8)),
        (lambda m, x: (m.raw.T @ x.mT), X, ("raw",), (1,), (0, 2), (6, 8)),
        (lambda m, x: torch.einsum("btc,hcd->bhtd", x, m.heads), X, ("heads",), (1, 3), (0, 2), (6, 12)),
        (lambda m, x: m.conv(x.mT), X, ("conv.weight",), (1,), (0, 2), (6, 8)),
        (lambda m, x: m.conv2(x), MAP, ("conv2.weight",), (1,), (0, 2, 3), (6, 8)),
        (lambda m, x: F.conv1d(weight=m.conv.weight, input=x.mT), X, ("conv.weight",), (1,), (0, 2), (6, 8)),
        (lambda m, x: F.linear(weight=m.map.weight, input=x), X, ("map.weight",), (2,), (0, 1), (6, 8)),
        (lambda m, x: torch.addmm(m.map.bias, x.view(10, 6), m.raw).view(2, 5, 8), X, ("raw",), (2,), (0, 1), (6, 8)),
        (lambda m, x: (x.reshape(10, 6) @ m.raw + m.map.bias).view(2, 5, 8), X, ("raw",), (2,), (0, 1), (6, 8)),
    ],
)  # fmt: skip
def test_projections(
    function: Callable[[Any, Tensor], Tensor],
    x: Tensor,
    names: tuple[str, ...],
    channels: tuple[int, ...],
    data: tuple[int, ...],
    widths: tuple[int, int],
    recorded: Record,
) -> None:
    found = source_of(recorded, function, x)
    assert (found.kind, found.parameters) == ("projection", names)
    assert (found.channel_axes, found.data_axes) == (channels, data)
    assert (found.in_width, found.out_width) == widths
    assert found.reads is not None


def test_the_nearest_of_two_maps(recorded: Record) -> None:
    found = source_of(recorded, lambda m, x: m.map(x) @ m.raw.T @ m.raw, X)
    assert (found.kind, found.parameters, found.in_width) == ("projection", ("raw",), 6)


@pytest.mark.parametrize(
    ("function", "x", "kind"),
    [
        (lambda m, x: x * 2, X, "input"),
        (lambda m, x: m.table(x), torch.randint(0, 20, (2, 5)), "opaque"),
        (lambda m, x: m.lstm(x)[0], X, "opaque"),
        (lambda m, x: m.asks.expand(2, 5, 8) * 1, X, "learned"),
        (lambda m, x: x @ x.mT, X, "context"),
    ],
)
def test_other_kinds(
    function: Callable[[Any, Tensor], Tensor], x: Tensor, kind: str, recorded: Record
) -> None:
    found = source_of(recorded, function, x)
    assert found.kind == kind
    assert found.reads is None
    assert found.channel_axes == (2,)
    assert found.data_axes == (0, 1)


def test_all_sources_nearest_first(recorded: Record) -> None:
    recording = recorded(One(lambda m, x: torch.cat((m.map(x), m.asks.expand(2, 5, 8)), 1)), X)
    sources = Sources(Dependence(recording))
    assert {s.kind for s in sources.of(recording.outputs[0])} == {"projection", "learned"}


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: F.linear(m.asks, m.square).view(1, 5, 2, 4).transpose(1, 2) * 3,
        lambda m, x: m.norm(m.asks).expand(2, 5, 8) @ m.square,
        lambda m, x: torch.einsum("bic,cd->bid", m.asks, m.square)[:, :, :4],
        lambda m, x: F.linear(torch.linspace(0, 1, 40).view(1, 5, 8), m.square).flatten(1),
    ],
)
def test_learned_queries_are_projected(
    function: Callable[[Any, Tensor], Tensor], recorded: Record
) -> None:
    recording = recorded(One(lambda m, x: function(m, x).sum() + m.map(x)), X)
    made = next(n for n in recording.graph.nodes if n.meta.get("op") == "sum")
    (found,) = Sources(Dependence(recording)).of(made.all_input_nodes[0])
    assert (found.kind, found.parameters, found.learned) == ("projection", ("square",), True)
    assert (found.in_width, found.out_width) == (8, 8)


def test_what_holds_data_goes_before_what_is_learned(recorded: Record) -> None:
    recording = recorded(One(lambda m, x: m.map(x) + m.asks @ m.square), X)
    first, *rest = Sources(Dependence(recording)).of(recording.outputs[0])
    assert (first.parameters, first.learned) == (("map.weight",), False)
    assert (("square",), True) in [(s.parameters, s.learned) for s in rest]


def test_a_low_rank_update_is_part_of_the_weight(recorded: Record) -> None:
    recording = recorded(One(lambda m, x: x @ (m.raw + m.raw[:, :2] @ m.square[:2])), X)
    (found,) = Sources(Dependence(recording)).of(recording.outputs[0])
    assert (found.kind, found.parameters, found.learned) == ("projection", ("raw", "square"), False)


def test_integers_are_no_source(recorded: Record) -> None:
    recording = recorded(One(lambda m, x: m.map(x)[:, x[0, :, 0].argsort()]), X)
    sources = Sources(Dependence(recording))
    found = sources.of(recording.outputs[0])
    assert [s.parameters for s in found if s.kind == "projection"] == [("map.weight",)]


def test_a_map_needs_data_and_a_weight(recorded: Record) -> None:
    recording = recorded(One(lambda m, x: m.map(x) @ m.map(x).mT + (m.raw @ m.raw.T).sum()), X)
    sources = Sources(Dependence(recording))
    nodes: list[fx.Node] = [n for n in recording.graph.nodes if n.op == "call_function"]
    maps = [n for n in nodes if sources.learned_map(n) is not None]
    mixing = [n for n in nodes if sources.is_mixing(n)]
    assert [n.meta["op"] for n in maps] == ["linear", "linear"]
    assert [n.meta["op"] for n in mixing] == ["matmul"]
