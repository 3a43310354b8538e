"""What normalises is found by what it does, whatever it is called."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.sites.normaliser import _spots

Find = Callable[..., Bench]


def attend(weigh: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return weigh(q @ k.mT) @ v

    return run


def by_hand(s: Tensor, dim: int = -1) -> Tensor:
    e = s.exp()
    return e / e.sum(dim, keepdim=True)


def shifted(s: Tensor) -> Tensor:
    e = (s - s.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def clamped(s: Tensor) -> Tensor:
    e = (s - s.max(-1, keepdim=True).values.detach()).exp()
    return e / e.sum(-1, keepdim=True).clamp(min=1e-9)


Q, K, V = torch.randn(2, 4, 5, 6), torch.randn(2, 4, 7, 6), torch.randn(2, 4, 7, 6)


@pytest.mark.parametrize(
    ("weigh", "element", "later", "made_by"),
    [
        (lambda s: s.softmax(-1), "softmax", 0, "softmax"),
        (lambda s: torch.softmax(s, -2), "softmax", 0, "softmax"),
        (lambda s: s.log_softmax(-1).exp(), "softmax", 0, "exp"),
        (by_hand, "coupled", 0, "div"),
        (shifted, "coupled", 0, "div"),
        (clamped, "coupled", 0, "div"),
        (lambda s: (s - s.logsumexp(-1, keepdim=True)).exp(), "coupled", 0, "exp"),
        (lambda s: torch.exp(s - torch.logsumexp(s, -2, keepdim=True)), "coupled", 0, "exp"),
        (lambda s: (s - s.exp().sum(-1, keepdim=True).log()).exp(), "coupled", 0, "exp"),
        (lambda s: (s - s.logsumexp(-1, keepdim=True)).exp().softmax(-1), "coupled", 1, "exp"),
        (lambda s: shifted(s).softmax(-1), "coupled", 1, "div"),
        (lambda s: s.softmax(-1).softmax(-1), "softmax", 1, "softmax"),
        (lambda s: (s.softmax(-1) + 1).log_softmax(-1), "softmax", 1, "softmax"),
        (lambda s: by_hand(s.softmax(-1)), "softmax", 1, "softmax"),
        (lambda s: s.softmax(-1) * 3, "softmax", 0, "softmax"),
        (lambda s: s.sigmoid(), "sigmoid", 0, "sigmoid"),
        (lambda s: s.relu() / 7, "relu", 0, "relu"),
    ],
)
def test_of_a_site(
    weigh: Callable[[Tensor], Tensor], element: str, later: int, made_by: str, found: Find
) -> None:
    bench = found(attend(weigh), Q, K, V)
    (site,) = bench.sites
    normaliser = site.normaliser
    assert (normaliser.element, len(normaliser.later)) == (element, later)
    assert normaliser.weights.meta["op"] == made_by
    logits = bench.replay.base(normaliser.logits)
    torch.testing.assert_close(logits, bench.replay.base(site.scores))


def test_none(found: Find) -> None:
    bench = found(attend(lambda s: s * 0.1), Q, K, V)
    (site,) = bench.sites
    assert site.normaliser.element is None
    assert site.normaliser.logits is site.normaliser.weights is site.weights


def test_logits_hold_scale_and_mask(found: Find) -> None:
    hidden = torch.ones(5, 7).triu(3).bool()
    bench = found(attend(lambda s: by_hand((s / 3).masked_fill(hidden, -1e9))), Q, K, V)
    (site,) = bench.sites
    logits = bench.replay.base(site.normaliser.logits)
    expected = (bench.replay.base(site.scores) / 3).masked_fill(hidden, -1e9)
    torch.testing.assert_close(logits, expected)


def test_logarithms_that_rounding_lost_are_some(found: Find) -> None:
    hidden = torch.ones(5, 7).bool()
    hidden[4, 5:] = False
    lowest = torch.finfo(torch.float32).min

    def weigh(s: Tensor) -> Tensor:
        s = s.masked_fill(hidden, lowest)
        return torch.exp(s - s.logsumexp(-1, keepdim=True))

    (site,) = found(attend(weigh), Q, K, V).sites
    assert site.normaliser.element == "coupled"
    assert site.normaliser.weights.meta["op"] == "exp"


def test_where_few_scores_stay_below_many_places_are_tried() -> None:
    at = torch.zeros(20, 30)
    at[3, 4] = -1.0
    places = _spots(at)
    assert places[0] == 94
    assert len({place // 30 for place in places}) > 15
    assert _spots(torch.randn(20, 30, generator=torch.Generator().manual_seed(0)))[0] != 94


def sparsemax(s: Tensor) -> Tensor:
    ordered = s.sort(-1, descending=True).values
    total = ordered.cumsum(-1) - 1
    count = (ordered * torch.arange(1, s.shape[-1] + 1) > total).sum(-1, keepdim=True)
    return (s - total.gather(-1, count - 1) / count).clamp(min=0)


def sinkhorn(s: Tensor) -> Tensor:
    for _ in range(2):
        s = s - s.logsumexp(-2, keepdim=True)
        s = s - s.logsumexp(-1, keepdim=True)
    return s.exp()


@pytest.mark.parametrize(
    ("weigh", "later", "made_by"),
    [
        (sparsemax, 0, "sub"),
        (lambda s: sparsemax(s - s.amax(-1, keepdim=True)), 0, "sub"),
        (sinkhorn, 3, "sub"),
    ],
)
def test_only_what_every_path_passes_counts(
    weigh: Callable[[Tensor], Tensor], later: int, made_by: str, found: Find
) -> None:
    (site,) = found(attend(weigh), Q, K, V).sites
    assert site.normaliser.element == "coupled"
    assert site.normaliser.weights.meta["op"] == made_by
    assert site.normaliser.logits is site.scores
    assert len(site.normaliser.later) == later


def test_a_shift_by_other_scores_is_no_shift(found: Find) -> None:
    def penalised(s: Tensor) -> Tensor:
        return (s - s[:, :1].relu()).softmax(-1)

    (site,) = found(attend(penalised), Q, K, V).sites
    assert site.normaliser.logits.meta["op"] == "sub"
    (site,) = found(attend(lambda s: (s - s.max()).clamp(min=-1e4).softmax(-1)), Q, K, V).sites
    assert site.normaliser.logits is site.scores
