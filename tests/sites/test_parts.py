"""The parts of a recording that may hold attention, found without any value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mha_lint.capture import Recording, record
from mha_lint.sites.parts import parts_of
from mha_lint.targets.large import WithoutLarge


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, factor: float) -> None:
        super().__init__()
        self.heads, self.factor = heads, factor
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)
        )
        weights = torch.softmax(q @ k.mT * self.factor, dim=-1)
        joined: Tensor = self.out((weights @ v).transpose(1, 2).flatten(2))
        return joined


class Layer(nn.Module):
    def __init__(self, width: int, factor: float) -> None:
        super().__init__()
        self.attention, self.up, self.down = (
            Attention(width, 4, factor),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        inner: Tensor = self.down(torch.relu(self.up(x)))
        return x + inner


class Model(nn.Module):
    def __init__(self, width: int, factors: list[float]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, f) for f in factors)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_layers_that_are_alike_are_one_part(recorded: Callable[..., Recording]) -> None:
    (part,) = parts_of(recorded(Model(24, [0.5, 0.5, 0.5]), torch.randn(2, 5, 24)))
    assert (part.path, part.class_name) == ("layers.0.attention", "Attention")
    assert part.alike == ("layers.0.attention", "layers.1.attention", "layers.2.attention")
    assert {n.meta["module"] for n in part.nodes} == {
        "layers.0.attention", "layers.0.attention.qkv", "layers.0.attention.out"
    }  # fmt: skip


def test_a_constant_that_differs_makes_another_part(recorded: Callable[..., Recording]) -> None:
    found = parts_of(recorded(Model(24, [0.5, 0.25, 0.5]), torch.randn(2, 5, 24)))
    assert [p.alike for p in found] == [
        ("layers.0.attention", "layers.2.attention"),
        ("layers.1.attention",),
    ]


def test_a_module_that_is_called_again_has_a_part_for_each_call(
    recorded: Callable[..., Recording],
) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer(24, 0.5)

        def forward(self, x: Tensor) -> Any:
            return self.layer(self.layer(x))

    (part,) = parts_of(recorded(Shared(), torch.randn(2, 5, 24)))
    assert part.alike == ("layer.attention", "layer.attention")


def test_reading_two_things_is_not_like_reading_one(recorded: Callable[..., Recording]) -> None:
    class Cross(Attention):
        def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
            q, k, v = self.qkv(x), self.qkv(x if y is None else y), self.qkv(x if y is None else y)
            weights = torch.softmax(q @ k.mT * self.factor, dim=-1)
            context: Tensor = weights @ v
            return context

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Cross(24, 4, 0.5), Cross(24, 4, 0.5)

        def forward(self, x: Tensor, y: Tensor) -> Any:
            return self.one(x) + self.two(x, y)

    found = parts_of(recorded(Both(), torch.randn(2, 5, 24), torch.randn(2, 5, 24)))
    assert [p.alike for p in found] == [("one",), ("two",)]


def test_without_two_products_of_data_there_is_no_part(recorded: Callable[..., Recording]) -> None:
    assert parts_of(recorded(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.randn(2, 8))) == []


def test_nothing_is_read_of_values_that_are_not_there() -> None:
    with WithoutLarge() as mode:
        model = Model(1024, [0.5, 0.5])
    x = torch.randn(2, 5, 1024)
    with mode:
        recording = record(model, (x,), {}, copy=False, compare=False)
    (part,) = parts_of(recording)
    assert part.alike == ("layers.0.attention", "layers.1.attention")


class Chosen(Attention):
    """Asks a small product of its own which keys to read."""

    def __init__(self, width: int) -> None:
        super().__init__(width, 4, 0.5)
        self.index = Index(width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)
        )
        scores = q @ k.mT * self.factor
        weights = torch.softmax(scores + self.index(x).unsqueeze(1), dim=-1)
        joined: Tensor = self.out((weights @ v).transpose(1, 2).flatten(2))
        return joined


class Index(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.gain = nn.Linear(width, 8), nn.Linear(width, 8), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.q(x).unflatten(-1, (2, 4)), self.k(x).unflatten(-1, (2, 4))
        each = torch.relu(torch.einsum("bqhd,bkhd->bqkh", q, k))
        told: Tensor = torch.einsum("bqkh,bqh->bqk", each, self.gain(x))
        return torch.where(told > told.median(), 0.0, -1e9)


def test_an_attention_around_a_part_is_a_part_of_its_own(
    recorded: Callable[..., Recording],
) -> None:
    model = nn.Sequential(Chosen(24), nn.Linear(24, 24))
    found = parts_of(recorded(model, torch.randn(2, 5, 24)))
    assert [(p.path, p.class_name) for p in found] == [("0", "Chosen"), ("0.index", "Index")]


def test_a_list_of_modules_is_no_part_but_what_calls_them(
    recorded: Callable[..., Recording],
) -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(24, 1)

        def forward(self, x: Tensor) -> Tensor:
            summed: Tensor = torch.softmax(self.one(x), 1).mT @ x
            return x * summed

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Pooled() for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    (part,) = parts_of(recorded(nn.Sequential(Stack(), nn.ReLU()), torch.randn(2, 5, 24)))
    assert (part.path, part.class_name) == ("0", "Stack")


def test_a_part_tells_how_much_it_computes(recorded: Callable[..., Recording]) -> None:
    recording = recorded(Model(24, [0.5]), torch.randn(2, 5, 24))
    (part,) = parts_of(recording)
    assert part.computed(recording) > 2 * 5 * 24 * 4 + 2 * (2 * 4 * 5 * 5)
