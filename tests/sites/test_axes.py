"""Axes of scores and operands, by label and by what varies along them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.sites.axes import axes_of, rows_summed, single, varying

Find = Callable[..., Bench]


class Pool(nn.Module):
    """Learned queries without an axis of samples ask every sample the same."""

    def __init__(self) -> None:
        super().__init__()
        self.asks = nn.Parameter(torch.randn(3, 12))
        self.q, self.k, self.v = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Any:
        b, t, _ = x.shape
        q = self.q(self.asks).view(3, 4, 3)
        k, v = self.k(x).view(b, t, 4, 3), self.v(x).view(b, t, 4, 3)
        weights = torch.einsum("shd,bthd->bhst", q, k).softmax(-1)
        return torch.einsum("bhst,bthd->bshd", weights, v)


def test_axes_by_label() -> None:
    assert axes_of((7, None, 3, 7), frozenset({7})) == (0, 3)
    assert axes_of((None, None), frozenset({1})) == ()


def test_axes_that_vary() -> None:
    rows, columns = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
    assert varying((rows, columns), (5, 6), frozenset({6})) == [1]
    assert varying((rows, columns), (5, 6), frozenset({5, 6})) == [0, 1]


def test_samples_that_only_the_keys_have_are_no_keys(found: Find) -> None:
    (site,) = found(Pool(), torch.randn(2, 5, 12)).sites
    assert site.kind.value == "cross"
    assert (site.row_axes, site.key_axes, site.group_axes) == ((2,), (3,), (0, 1))
    assert site.q is not None and site.k is not None
    assert (site.k.rows, site.k.groups) == ((1,), (0, 2))
    assert not site.q.holds_data and not site.q.learned


def test_all_rows_stay_where_all_are_summed(found: Find) -> None:
    bench = found(Pool(), torch.randn(2, 5, 12))
    (site,) = bench.sites
    assert site.score is not None and site.k is not None and site.q is not None
    labels = site.score.side(site.key_left)[1]
    every = frozenset(x for x in labels if x is not None)
    assert rows_summed(site.k, every, labels) is site.k
    assert rows_summed(site.k, frozenset(), labels) is site.k
    assert single(site.q, bench.replay) is False
