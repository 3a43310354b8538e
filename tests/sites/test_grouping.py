"""Which sites are the heads of one loop."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mha_lint.facts.bench import Bench

Find = Callable[..., Bench]


class Slots(nn.Module):
    """Heads of 4 channels each; `into` makes what the next head reads and what is mixed in the end."""

    def __init__(
        self, into: Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]
    ) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(8, 12) for _ in range(2))
        self.mix = nn.Linear(8, 8)
        self.into = into

    def forward(self, x: Tensor) -> Tensor:
        reads, mixed = x, x
        for i, layer in enumerate(self.maps):
            q, k, v = layer(reads).chunk(3, -1)
            reads, mixed = self.into(reads, mixed, (q @ k.mT / 2).softmax(-1) @ v, i)
        out: Tensor = self.mix(mixed)
        return out


X = torch.randn(2, 5, 8)


def put(into: Tensor, found: Tensor, i: int) -> Tensor:
    return torch.cat([into[..., : 4 * i], found, into[..., 4 * i + 4 :]], -1)


def test_slots_written_into_what_the_next_head_reads(found: Find) -> None:
    def chained(reads: Tensor, _mixed: Tensor, made: Tensor, i: int) -> tuple[Tensor, Tensor]:
        return (y := put(reads, made, i)), y

    (site,) = found(Slots(chained), X).sites
    assert len(site.members) == 2


def test_slots_written_in_place(found: Find) -> None:
    def in_place(reads: Tensor, _mixed: Tensor, made: Tensor, i: int) -> tuple[Tensor, Tensor]:
        y = reads.clone()
        y[..., 4 * i : 4 * i + 4] = made
        return y, y

    (site,) = found(Slots(in_place), X).sites
    assert len(site.members) == 2


def test_layers_that_read_sums_stay_apart(found: Find) -> None:
    def residual(reads: Tensor, _mixed: Tensor, made: Tensor, _i: int) -> tuple[Tensor, Tensor]:
        return (y := reads + torch.cat([made, made], -1)), y

    assert [s.members for s in found(Slots(residual), X).sites] == [(), ()]


def test_slots_of_positions_stay_apart(found: Find) -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.mix = nn.Linear(8, 24), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            for i in range(2):
                q, k, v = self.qkv(x).chunk(3, -1)
                made = (q @ k.mT / 8**0.5).softmax(-1) @ v
                x = torch.cat([x[:, :i], made[:, i : i + 1], x[:, i + 1 :]], 1)
            out: Tensor = self.mix(x)
            return out

    assert [s.members for s in found(Steps(), X).sites] == [(), ()]
