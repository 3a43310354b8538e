"""Sites whose weights go on in the place of their context."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mha_lint.facts.bench import Bench

Find = Callable[..., Bench]


class Attention(nn.Module):
    def __init__(self, use: Callable[[Tensor, Tensor], Tensor], *, mapped: bool = True) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.use, self.mapped = use, mapped

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = (q @ k.mT / 8**0.5).softmax(-1)
        context = weights @ v
        used = self.use(context, weights)
        return self.out(used) if self.mapped else used


X = torch.randn(2, 8, 8)


def test_a_map_over_the_keys(found: Find) -> None:
    (site,) = found(Attention(lambda c, w: w), X).sites
    assert site.instead is not None and site.instead.meta["op"] == "linear"
    assert site.context.meta["op"] == "matmul"


def test_a_map_over_the_keys_behind_a_norm_and_a_residual(found: Find) -> None:
    norm = nn.LayerNorm(8)
    (site,) = found(Attention(lambda c, w: norm(w + X)), X).sites
    assert site.instead is not None and site.instead.meta["op"] == "linear"


def test_the_weights_alone_are_returned(found: Find) -> None:
    bench = found(Attention(lambda c, w: w, mapped=False), X)
    (site,) = bench.sites
    assert site.instead is bench.recording.outputs[0]


def test_a_context_that_is_read_is_a_plain_site(found: Find) -> None:
    (site,) = found(Attention(lambda c, w: c), X).sites
    assert site.instead is None
    (site,) = found(Attention(lambda c, w: c + w.sum(-1, keepdim=True)), X).sites
    assert site.instead is None


def test_weights_that_are_summed_up_make_no_site(found: Find) -> None:
    assert found(Attention(lambda c, w: w.sum(1).unsqueeze(-1) * X), X).sites == []
