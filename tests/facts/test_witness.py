"""One changed position moves one row of each head, unless the split is wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mha_lint.capture import record
from mha_lint.facts.bench import Bench
from mha_lint.facts.witness import split_witness


class Split(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(12, 12) for _ in range(3))
        self.how = how

    def split(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        if self.how == "right":
            return x.view(b, t, 3, 4).transpose(1, 2)
        if self.how == "viewed":
            return x.view(b, 3, t, 4)
        return x.transpose(1, 2).reshape(b, 3, t, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        context: Tensor = (q @ k.mT / 2).softmax(-1) @ v
        return context


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("right", ""),
        (
            "viewed",
            "changing one position of q alone moves rows 0, 1 and 2 of one score matrix, not one row"
            " of each head",
        ),
        (
            "turned",
            "changing one position of q alone moves rows 0, 1, 3 and 5 of one score matrix, not one row"
            " of each head",
        ),
    ],
)
def test_what_two_runs_show(how: str, said: str) -> None:
    bench = Bench.of(record(Split(how), (torch.randn(2, 7, 12),), {}))
    operand = bench.sites[0].all[0].q
    assert operand is not None
    assert split_witness(bench, operand, "q") == said
