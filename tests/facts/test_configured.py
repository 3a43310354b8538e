"""What a module's configuration states, as far as its code reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from mha_lint.capture import record
from mha_lint.facts.bench import Bench
from mha_lint.facts.configured import configured, names_read_around

OPTIONS = {"key_scale": 0.4, "unread_scale": 0.5}


class Core(nn.Module):
    def __init__(self, config: Any, options: dict[str, float]) -> None:
        super().__init__()
        self.config, self.options = config, options
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.scale = config.multiplier * self.options["key_scale"]

    def forward(self, x: Tensor) -> Tensor:
        context: Tensor = (self.q(x) @ self.k(x).mT * self.scale).softmax(-1) @ self.v(x)
        return context


class Model(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.core, self.other = Core(config, OPTIONS), nn.Linear(8, 8)
        self.width = config.width

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.core(x)
        return y


def test_entries_that_the_code_reads() -> None:
    config = SimpleNamespace(multiplier=0.125, width=8, unread=0.25, name="x", flag=True)
    bench = Bench.of(record(Model(config), (torch.randn(2, 5, 8),), {}))
    assert configured(bench, bench.sites[0]) == {"multiplier": 0.125, "width": 8, "key_scale": 0.4}


def test_names_that_the_code_around_the_sites_reads() -> None:
    config = SimpleNamespace(multiplier=0.125, width=8)
    found = names_read_around(Bench.of(record(Model(config), (torch.randn(2, 5, 8),), {})))
    assert {"multiplier", "width", "key_scale"} <= found
    assert "unread_scale" not in found


def test_a_function_has_none() -> None:
    def attend(x: Tensor) -> Tensor:
        context: Tensor = (x @ x.mT).softmax(-1) @ x
        return context

    bench = Bench.of(record(attend, (torch.randn(2, 5, 8),), {}))
    assert configured(bench, bench.sites[0]) == {}
