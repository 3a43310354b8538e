"""Axes of an operand: what varies along rows, features and groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.sites.operand import Variation

Find = Callable[..., Bench]
Split = Callable[[Tensor], Tensor]

NOTHING, CHANNELS = Variation(), Variation(channels=True)


def over(*axes: int, channels: bool = False) -> Variation:
    return Variation(frozenset(axes), channels)


class Attention(nn.Module):
    def __init__(self, split: Split) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.split = split

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return (q @ k.mT).softmax(-1) @ v


X = torch.randn(2, 5, 12)


@pytest.mark.parametrize(
    ("split", "varies"),
    [
        (lambda z: z.view(2, 5, 3, 4).transpose(1, 2), (over(0), CHANNELS, over(1), CHANNELS)),
        (lambda z: z.view(2, 5, 3, 4), (over(0), over(1), CHANNELS, CHANNELS)),
        (lambda z: z.view(2, 3, 5, 4), (over(0), over(1, channels=True), over(1, channels=True), CHANNELS)),
        (lambda z: z.view(2, 5, 3, 4).permute(1, 2, 0, 3), (over(1), CHANNELS, over(0), CHANNELS)),
        (lambda z: z.view(2, 5, 4, 3).permute(0, 3, 1, 2), (over(0), CHANNELS, over(1), CHANNELS)),
        (lambda z: z.view(2, 5, 3, 4).transpose(1, 2).reshape(6, 5, 4), (over(0, channels=True), over(1), CHANNELS)),
        (lambda z: z, (over(0), over(1), CHANNELS)),
    ],
)  # fmt: skip
def test_what_varies(split: Split, varies: tuple[Variation, ...], found: Find) -> None:
    (site,) = found(Attention(split), X).sites
    assert site.q is not None
    assert site.q.varies == varies
    rank = len(varies)
    assert (site.q.rows, site.q.features) == ((rank - 2,), (rank - 1,))
    assert site.q.groups == tuple(range(rank - 2))
    assert site.v.rows == (rank - 2,)
    assert site.v.features == (rank - 1,)
    assert site.q.source is not None and site.q.source.parameters == ("q.weight",)
    assert site.v.source is not None and site.v.source.parameters == ("v.weight",)
    assert site.q.learned is False


def test_positions_of_rows(found: Find) -> None:
    (right,) = found(Attention(lambda z: z.view(2, 5, 3, 4).transpose(1, 2)), X).sites
    assert right.q is not None and right.q.position_axes == {1}
    (batch,) = found(Attention(lambda z: z.view(2, 5, 3, 4).permute(1, 2, 0, 3)), X).sites
    assert batch.q is not None and batch.q.position_axes == {0}


def test_a_rotation_does_not_hide_the_heads(found: Find) -> None:
    turn = torch.linalg.qr(torch.randn(4, 4))[0]
    split: Split = lambda z: z.view(2, 5, 3, 4).transpose(1, 2) @ turn.to(z.dtype)  # noqa: E731
    (site,) = found(Attention(split), X).sites
    assert site.q is not None
    assert site.q.varies[1] == CHANNELS
    assert site.q.varies[2] == over(1)
    assert site.q.varies[0] == over(0)


def test_a_norm_over_channels_does_not_hide_the_heads(found: Find) -> None:
    split: Split = lambda z: nn.functional.layer_norm(z.view(2, 5, 3, 4).transpose(1, 2), (4,))  # noqa: E731
    (site,) = found(Attention(split), X).sites
    assert site.q is not None
    assert site.q.varies[1].channels and not site.q.varies[1].data
    assert site.q.varies[2].data == {1} and not site.q.varies[2].channels


def test_a_cache_beside_the_keys(found: Find) -> None:
    class Cached(Attention):
        def forward(self, x: Tensor, past: Tensor | None = None) -> Any:
            assert past is not None
            k = torch.cat((past, self.k(x)), 1)
            return (self.q(x) @ k.mT).softmax(-1) @ k

    (site,) = found(Cached(lambda z: z), X, torch.randn(2, 3, 12)).sites
    assert site.k is not None and site.k.source is not None
    assert site.k.source.parameters == ("k.weight",)
    assert [s.kind for s in site.k.sources] == ["projection", "input"]
    assert site.k.position_axes == {1}


def test_learned_queries(found: Find) -> None:
    class Pooling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.asks = nn.Parameter(torch.randn(3, 12))
            self.k, self.v = nn.Linear(12, 12), nn.Linear(12, 12)

        def forward(self, x: Tensor) -> Any:
            return (self.asks @ self.k(x).mT).softmax(-1) @ self.v(x)

    (site,) = found(Pooling(), X).sites
    assert site.kind.value == "pooling"
    assert site.v.source is not None and site.v.source.parameters == ("v.weight",)
    assert site.v.position_axes == {1}
