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


def by_loop(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    state = torch.zeros(q.size(0), 8, 6)
    rows = []
    for i in range(q.size(1)):
        state = 0.9 * state + k[:, i, :, None] * v[:, i, None, :]
        rows.append((q[:, i, None] @ state)[:, 0])
    return torch.stack(rows, 1)


def by_loop_with_a_bonus(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    state: Tensor | float = 0.0
    rows = []
    for one, two, three in zip(q.unbind(1), k.unbind(1), v.unbind(1), strict=True):
        new = torch.einsum("bd,bm->bdm", two, three)
        rows.append(torch.einsum("bd,bdm->bm", one, state + 0.5 * new))
        state = two.sigmoid()[..., None] * state + new
    return torch.stack(rows, 1)


def by_two_loops(module: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    other = by_loop(module, q.flip(1), k.flip(1), v.flip(1))
    return by_loop(module, q, k, v) + other.flip(1)


def loop_of_sums(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    total = torch.zeros(q.size(0), 6)
    rows = []
    for i in range(q.size(1)):
        total = total + v[:, i]
        rows.append(total * (q[:, i] * k[:, i]).sum(-1, keepdim=True))
    return torch.stack(rows, 1)


def full_decay(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A recurrence whose state is weakened element by element: a state space, no attention."""
    state = torch.zeros(q.size(0), 8, 6)
    rows = []
    for i in range(q.size(1)):
        new = k[:, i, :, None] * v[:, i, None, :]
        state = new.sigmoid() * state + new
        rows.append((q[:, i, None] @ state)[:, 0])
    return torch.stack(rows, 1)


def test_a_loop_over_positions_is_one_site(recorded: Record) -> None:
    bench = Bench.of(recorded(Running(by_loop), torch.randn(2, 7, 8)))
    (site,) = bench.sites
    assert site.kind is Kind.LINEAR
    # The last reading, of all seven positions, stands for the site.
    assert (
        str(site.context) == [str(n) for n in bench.recording.graph.nodes if "matmul" in n.name][-1]
    )
    assert kinds(recorded, by_loop_with_a_bonus) == [Kind.LINEAR]
    assert kinds(recorded, by_two_loops) == [Kind.LINEAR, Kind.LINEAR]


def test_loops_that_are_no_attention(recorded: Record) -> None:
    assert kinds(recorded, loop_of_sums) == []
    assert kinds(recorded, full_decay) == []
