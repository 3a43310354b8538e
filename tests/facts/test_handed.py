"""A scale that the enclosing class hands down is the user's choice; one computed on the spot is not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mha_lint.capture import record
from mha_lint.facts.bench import Bench
from mha_lint.facts.handed import by_layer, configured_as_one, handed_down


class Core(nn.Module):
    def __init__(self, dim: int, scale: float | None = None, temperature: float = 1.0) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.scale = scale or dim**-0.5
        self.temperature = 1 / temperature
        self.own = 0.3 * dim

    def forward(self, x: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).mT * self.scale
        context: Tensor = scores.softmax(-1) @ self.v(x)
        return context


class Model(nn.Module):
    def __init__(self, **options: float) -> None:
        super().__init__()
        self.core = Core(8, **options)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.core(x)
        return y


@pytest.mark.parametrize(
    ("options", "value", "name"),
    [
        ({"scale": 0.1}, 0.1, "scale"),
        ({"temperature": 3.0}, 1 / 3, "temperature"),
        ({"scale": 0.1}, 0.2, None),
        ({}, 2.4, None),
    ],
)
def test_what_was_handed_down(options: dict[str, float], value: float, name: str | None) -> None:
    bench = Bench.of(record(Model(**options), (torch.randn(2, 5, 8),), {}))
    assert handed_down(bench, bench.sites[0], value) == name


def test_the_target_itself_is_no_callee() -> None:
    bench = Bench.of(record(Core(8, scale=0.1), (torch.randn(2, 5, 8),), {}))
    assert handed_down(bench, bench.sites[0], 0.1) is None


class Layer(nn.Module):
    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.layer_idx, self.num_layers, self.heads = layer_idx, 5, 7

    def forward(self, x: Tensor) -> Tensor:
        context: Tensor = (self.q(x) @ self.k(x).mT).softmax(-1) @ self.v(x)
        return context


@pytest.mark.parametrize(
    ("ratio", "name"),
    [(1 / 3, "1/(layer_idx + 1)"), (0.5, "1/layer_idx"), (1 / 7, None), (1.0, None), (3.0, None)],
)
def test_deeper_layers_with_smaller_scores(ratio: float, name: str | None) -> None:
    bench = Bench.of(record(Layer(2), (torch.randn(2, 5, 8),), {}))
    assert by_layer(bench, bench.sites[0], ratio) == name


class Multiplied(nn.Module):
    def __init__(self, config: dict[str, float], scale: float, how: str) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.entry, self.argument, self.how = config["multiplier"], scale, how

    def forward(self, x: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).mT
        if self.how != "neither":
            scores = scores * getattr(self, self.how)
        context: Tensor = scores.softmax(-1) @ self.v(x)
        return context


@pytest.mark.parametrize(
    ("how", "value", "named", "name"),
    [
        ("entry", 0.125, True, "entry"),
        ("entry", 0.125, False, "entry"),
        ("entry", 0.2, True, None),
        ("argument", 0.3, True, None),
    ],
)
def test_entries_of_a_configuration_count_for_the_target_itself(
    how: str, value: float, named: bool, name: str | None
) -> None:
    module = Multiplied({"multiplier": 0.125}, 0.3, how)
    bench = Bench.of(record(module, (torch.randn(2, 5, 8),), {}))
    assert handed_down(bench, bench.sites[0], value, named=named) == name


@pytest.mark.parametrize(
    ("how", "multiplier", "name"),
    [
        ("entry", 1.0, "entry"),
        ("neither", 1.0, None),
        ("argument", 0.5, None),
        ("entry", 2.0, None),
    ],
)
def test_a_multiplier_of_one_is_meant(how: str, multiplier: float, name: str | None) -> None:
    module = Multiplied({"multiplier": multiplier}, 1.0, how)
    bench = Bench.of(record(module, (torch.randn(2, 5, 8),), {}))
    assert configured_as_one(bench, bench.sites[0]) == name
