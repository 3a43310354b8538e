"""Unrolled loops: recurrences are searched at their ends, loops over heads and blocks as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Kind
from mha_lint.sites.finder import Finder

Find = Callable[..., Bench]
STEPS = 24


class Delta(nn.Module):
    """Solves a triangular system row by row: each product reads all rows that came before it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        k = F.normalize(self.k(x), dim=-1)
        lower = -(k @ k.mT).tril(-1)
        for i in range(1, x.shape[1]):
            row = lower[:, i, :i].clone()
            lower[:, i, :i] = row + (row.unsqueeze(-1) * lower[:, :i, :i].clone()).sum(-2)
        solved: Tensor = lower @ self.v(x)
        out: Tensor = solved + self.q(x)
        return out


class Heads(nn.Module):
    """A loop over more heads than a recurrence has steps before it is taken for one."""

    def __init__(self, run: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.maps, self.run = nn.ModuleList(nn.Linear(36, 36) for _ in "qkv"), run

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (m(x).unflatten(-1, (12, 3)) for m in self.maps)
        heads = [self.run(q[:, :, i], k[:, :, i], v[:, :, i]) for i in range(12)]
        return torch.cat(heads, -1)


class Gathered(nn.Module):
    """Scores of each head by themselves, one product with the values for all."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(36, 36) for _ in "qkv")

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (m(x).unflatten(-1, (12, 3)) for m in self.maps)
        scores = [q[:, :, i] @ k[:, :, i].mT / 3**0.5 for i in range(12)]
        weights = torch.softmax(torch.stack(scores, 1), -1)
        out: Tensor = (weights @ v.transpose(1, 2)).transpose(1, 2).flatten(2)
        return out


class Blocks(nn.Module):
    """Softmax over blocks of keys, one after the other, with a running maximum and sum."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(6, 6) for _ in "qkv")

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (m(x) for m in self.maps)
        top, total, out = (
            q.new_full(q.shape[:2], -1e9),
            q.new_zeros(q.shape[:2]),
            torch.zeros_like(q),
        )
        for start in range(0, x.shape[1], 2):
            scores = q @ k[:, start : start + 2].mT / 6**0.5
            higher = torch.maximum(top, scores.amax(-1))
            shrunk, parts = (top - higher).exp(), (scores - higher.unsqueeze(-1)).exp()
            total = total * shrunk + parts.sum(-1)
            out = out * shrunk.unsqueeze(-1) + parts @ v[:, start : start + 2]
            top = higher
        whole: Tensor = out / total.unsqueeze(-1)
        return whole


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT / 3**0.5, -1) @ v


def test_a_recurrence_is_not_searched_pair_by_pair(
    found: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []
    search = Finder._with_score

    def counted(self: Finder, *args: Any) -> Any:
        tried.append(args)
        return search(self, *args)

    monkeypatch.setattr(Finder, "_with_score", counted)
    assert found(Delta(), torch.randn(2, STEPS, 6)).sites == []
    assert len(tried) < STEPS


@pytest.mark.parametrize("run", [by_hand, F.scaled_dot_product_attention])
def test_a_loop_over_many_heads_is_one_site_of_all(found: Find, run: Any) -> None:
    (site,) = found(Heads(run), torch.randn(2, 5, 36)).sites
    assert (site.kind, len(site.all)) == (Kind.SELF, 12)


def test_scores_of_many_heads_are_found_behind_one_product(found: Find) -> None:
    (site,) = found(Gathered(), torch.randn(2, 5, 36)).sites
    assert (site.kind, len(site.extra)) == (Kind.SELF, 11)


def test_blocks_of_keys_are_found_though_each_reads_those_before(found: Find) -> None:
    sites = found(Blocks(), torch.randn(2, STEPS, 6)).sites
    assert [s.kind for s in sites] == [s.kind for s in found(Blocks(), torch.randn(2, 8, 6)).sites]
