"""A site's own view of its nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.sites.origin import compose
from mha_lint.sites.trace import trace

Find = Callable[..., Bench]


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / 2).softmax(-1).transpose(1, 2).transpose(1, 2) @ v


ARGS = (torch.randn(2, 4, 5, 6), torch.randn(2, 4, 7, 6), torch.randn(2, 4, 7, 6))


def test_nodes(found: Find) -> None:
    (site,) = found(attend, *ARGS).sites
    assert site.score is not None
    assert site.scores is site.score.node
    assert site.weights is site.value.left
    assert site.context is site.value.node
    without = replace(site, score=None)
    assert without.scores is site.normaliser.logits
    assert replace(site, members=(site, site)).all == (site, site)


def test_indices_are_chained_through_the_normaliser(found: Find) -> None:
    bench = found(attend, *ARGS)
    (site,) = bench.sites
    assert site.to_logits is not None
    composed = compose(site.to_logits, site.to_weights)
    assert composed is not None
    assert [i.shape for i in composed] == [(2, 4, 5, 7)] * 4
    assert torch.equal(composed[3][0, 0, 0], torch.arange(7))
    other = trace(bench.replay, site.context, site.context)
    assert compose(site.to_logits, other) is None
