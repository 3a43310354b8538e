"""Linear attention with a running state is a site, and a running mean is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_lint.capture import Recording
from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Kind

Record = Callable[..., Recording]


class Running(nn.Module):
    def __init__(self, function: Callable[[Any, Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 6)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, F.relu(self.q(x)) + 1, F.relu(self.k(x)) + 1, self.v(x))


def kinds(recorded: Record, function: Callable[..., Tensor]) -> list[Kind]:
    return [s.kind for s in Bench.of(recorded(Running(function), torch.randn(2, 7, 8))).sites]


def by_einsum(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    state = torch.einsum("btd,btm->btdm", k, v).cumsum(1)
    return torch.einsum("btd,btdm->btm", q, state)


def by_product(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    state = (k[..., :, None] * v[..., None, :]).cumsum(1)
    return (q[..., None] * state).sum(-2) / (q * k.cumsum(1)).sum(-1, keepdim=True)


def running_mean(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q * k).sum(-1, keepdim=True) * v.cumsum(1)


def outer_product_of_one(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("btd,btdm->btm", q, torch.einsum("btd,btm->btdm", k, v))


def test_a_running_state_is_linear_attention(recorded: Record) -> None:
    assert kinds(recorded, by_einsum) == [Kind.LINEAR]
    assert kinds(recorded, by_product) == [Kind.LINEAR]


def test_what_is_cumulated_must_be_a_state(recorded: Record) -> None:
    assert kinds(recorded, running_mean) == []
    assert kinds(recorded, outer_product_of_one) == []
