"""What is no attention although products and a softmax stand in a row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Kind

Find = Callable[..., Bench]


class Affinity(nn.Module):
    """Co-attention: features that hold a product are scored by a learned vector."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.score = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 1)
        self.between = nn.Linear(6, 6)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        seen = torch.tanh(self.a(x) + torch.tanh(self.between(x) @ y.mT) @ self.b(y))
        pooled: Tensor = (self.score(seen).softmax(1) * x).sum(1)
        return pooled


def test_an_affinity_is_a_feature(found: Find) -> None:
    (site,) = found(Affinity(), torch.randn(2, 5, 6), torch.randn(2, 7, 6)).sites
    assert site.kind is Kind.POOLING
    assert site.score is None


def divergence(q: Tensor, k: Tensor, v: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    w = (q @ k.mT).softmax(-1)
    p = prior.softmax(-1)
    return w @ v, (p * (p.log() - w.log())).sum(-1)


def test_a_logarithm_of_weights_is_no_weight(found: Find) -> None:
    q, k, v = torch.randn(2, 5, 6), torch.randn(2, 7, 6), torch.randn(2, 7, 3)
    (site,) = found(divergence, q, k, v, torch.randn(2, 5, 7)).sites
    assert site.context.meta["op"] == "matmul"


def test_differences_of_weights_are_weights(found: Find) -> None:
    def two(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        w = (q @ k.mT).softmax(-1)
        return (w[:, 0] - 0.4 * w[:, 1]) @ v

    q, k, v = torch.randn(2, 2, 5, 6), torch.randn(2, 2, 7, 6), torch.randn(2, 7, 3)
    assert len(found(two, q, k, v).sites) == 1


def test_a_norm_of_scores_is_no_attention(found: Find) -> None:
    def normed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = q @ k.mT
        return (s / s.abs().sum(-1, keepdim=True)) @ v

    assert (
        found(normed, torch.randn(2, 5, 6), torch.randn(2, 7, 6), torch.randn(2, 7, 3)).sites == []
    )
