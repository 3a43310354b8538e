"""Tables of queries and keys, whatever the layout of the tensors that they are read from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.facts.masks.pairs import pairs_of, places_of
from tests.facts.masks.spelled import masked
from tests.facts.spellings import BMM, KEY_FIRST

if TYPE_CHECKING:
    from tests.facts.conftest import Measure


@pytest.mark.parametrize("text", [masked(), BMM, KEY_FIRST], ids=["plain", "bmm", "key first"])
def test_scores_and_weights_agree(text: str, measured: Measure) -> None:
    bench = measured(text=text).bench
    site = bench.sites[0]
    pairs = pairs_of(bench, site)
    assert pairs is not None and pairs.keys == 5
    logits = pairs.table(site.normaliser.logits, bench.replay.base(site.normaliser.logits))
    weights = pairs.table(site.weights, bench.replay.base(site.weights))
    assert logits is not None and weights is not None
    assert logits.shape == (40, 5)
    torch.testing.assert_close(weights, logits.softmax(-1))


def test_what_rows_stand_for(measured: Measure) -> None:
    bench = measured().bench
    pairs = pairs_of(bench, bench.sites[0])
    assert pairs is not None
    places = places_of(pairs)
    assert places is not None
    assert places.samples.tolist() == [0] * 20 + [1] * 20
    assert places.queries.tolist() == [0, 1, 2, 3, 4] * 8
    assert places.keys.tolist() == [[0, 1, 2, 3, 4]] * 40


def test_a_sink_beside_the_keys(measured: Measure) -> None:
    text = masked(
        "scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -1e9)",
        "scores = torch.cat((scores, torch.zeros(B, self.h, T, 1)), -1)",
    ).replace("context = weights @ v", "context = weights[..., :-1] @ v")
    bench = measured(text=text).bench
    site = bench.sites[0]
    pairs = pairs_of(bench, site)
    assert pairs is not None and pairs.keys == 5
    logits = pairs.table(site.normaliser.logits, bench.replay.base(site.normaliser.logits))
    assert logits is not None
    assert bool((logits.reshape(8, 5, 5)[:, torch.ones(5, 5).triu(1).bool()] == -1e9).all())
    beside = pairs.by_row(bench.replay.base(site.normaliser.logits))
    assert beside is not None and beside.shape == (40, 6)


def test_a_value_of_another_size(measured: Measure) -> None:
    bench = measured().bench
    pairs = pairs_of(bench, bench.sites[0])
    assert pairs is not None
    assert pairs.table(bench.sites[0].scores, torch.zeros(3)) is None
    assert pairs.table(bench.sites[0].context, bench.replay.base(bench.sites[0].context)) is None


def test_one_half_of_additive_scores(measured: Measure) -> None:
    text = """\
class Graph(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.lin, self.out = nn.Linear(d, d), nn.Linear(d, d)
        self.left, self.right = (nn.Parameter(torch.randn(h, d // h)) for _ in range(2))

    def forward(self, x, edges):
        z = self.lin(x).unflatten(-1, (self.h, -1))
        e = (z * self.left).sum(-1)[:, :, None] + (z * self.right).sum(-1)[:, None]
        e = e.masked_fill(~edges[..., None], -1e9)
        y = torch.einsum("bsth,bshd->bthd", e.softmax(1), z)
        return self.out(y.flatten(2))
"""
    call = "torch.randn(2, 5, 12), torch.eye(5).bool().expand(2, 5, 5)"
    case = measured(text=text, build="Graph(12, 3)", call=call)
    bench = case.bench
    pairs = pairs_of(bench, bench.sites[0])
    assert pairs is not None and pairs.of_logits
    weights = pairs.table(bench.sites[0].weights, bench.replay.base(bench.sites[0].weights))
    assert weights is not None and weights.shape == (30, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(30).double())
    assert ((weights != 0).sum(-1) == 1).all()
