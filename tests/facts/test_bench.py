"""Inputs to measure on: data is redrawn, masks and flags stay."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mha_lint.capture import record
from mha_lint.facts.bench import INSTEAD, Bench, measuring_inputs


def test_masks_stay_and_data_is_redrawn() -> None:
    padded = torch.zeros(3, 100)
    padded[:, 90:] = -torch.inf
    late = torch.cat((torch.zeros(100), torch.arange(100.0)))
    given = (torch.randn(3, 100), padded, late, torch.arange(5))

    def add(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        return (a + b).softmax(-1).sum() + c.sum() + d.sum()

    data, mask, mixed, whole = measuring_inputs(record(add, given, {}), 0)
    assert not torch.equal(data.float(), given[0])
    assert torch.equal(mask, padded)
    assert not torch.equal(mixed.float(), late) and mixed.min() >= 0
    assert torch.equal(whole, given[3])


class Filled(nn.Module):
    """The fill overflows half precision, and 0 times infinity is NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))
        self.register_buffer("fill", torch.tensor(-1e9))

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        assert isinstance(self.fill, Tensor)
        scores = self.q(x) @ self.k(x).mT / 6**0.5 + (1 - keep)[:, None] * self.fill
        context: Tensor = scores.softmax(-1) @ self.v(x)
        return context


def test_an_infinite_constant_that_would_drown_everything_is_finite() -> None:
    keep = torch.tensor([[1.0, 1.0, 1.0, 0.0]]).half()
    bench = Bench.of(record(Filled().half(), (torch.randn(1, 4, 6).half(), keep), {}))
    (site,) = bench.sites
    assert bench.replay.base(site.weights)[..., 3].abs().max() == 0
    held = bench.recording.graph.find_nodes(op="get_attr")
    (fill,) = [n for n in held if bench.recording.values[n].numel() == 1]
    assert (bench.recording.values[fill], bench.replay.base(fill)) == (-torch.inf, -INSTEAD)


class Experts(nn.Module):
    """Each expert gets the tokens routed to it: with other weights they are other ones."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.route = (nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = (self.q(x) @ self.k(x).mT / 6**0.5).softmax(-1) @ self.v(x)
        flat = y.flatten(0, 1)
        chosen = self.route(flat).topk(1, -1).indices[:, 0]
        sums = [flat[(chosen == e).nonzero()[:, 0]].sum(0) for e in range(6)]
        return torch.stack(sums)


def test_where_the_data_decides_sizes_it_is_measured_on_as_recorded() -> None:
    torch.manual_seed(3)
    given = torch.randn(2, 5, 6)
    bench = Bench.of(record(Experts(), (given,), {}))
    assert len(bench.sites) == 1
    (x,) = bench.recording.placeholders
    assert torch.equal(bench.replay.base(x).float(), given)
