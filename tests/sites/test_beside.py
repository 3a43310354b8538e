"""Scores of several products side by side are no sinks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.sites.beside import products_beside

Found = Callable[..., Bench]


class Blocks(nn.Module):
    """Words (the first five) and entities: queries of words have a map for each kind of key."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.q, self.q2, self.k, self.v = (nn.Linear(6, 6) for _ in range(4))
        self.sink = nn.Parameter(torch.zeros(1, 1, 2))
        self.table = nn.Parameter(torch.randn(5, 6))

    def forward(self, x: Tensor) -> Tensor:
        words, k, v = x[:, :5], self.k(x), self.v(x)
        scores = self.q(words) @ k[:, :5].mT
        if self.how == "blocks":
            scores = torch.cat((scores, self.q2(words) @ k[:, 5:].mT), -1)
        elif self.how == "positions":
            scores, v = scores + self.q(words) @ self.table.T, v[:, :5]
        else:
            scores = torch.cat((scores, self.sink.expand(2, 5, 2)), -1)
        context: Tensor = (scores / 6**0.5).softmax(-1) @ v
        return context


@pytest.mark.parametrize(
    ("how", "beside"), [("blocks", True), ("positions", False), ("sink", False)]
)
def test_products_beside_the_scores(how: str, beside: bool, found: Found) -> None:
    bench = found(Blocks(how), torch.randn(2, 7, 6))
    site = bench.sites[0].all[0]
    assert products_beside(bench.dependence, bench.replay, site) is beside
