"""A scale that the enclosing class hands down is the user's choice; one computed on the spot is not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mha_lint.capture import record
from mha_lint.facts.bench import Bench
from mha_lint.facts.handed import handed_down


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
