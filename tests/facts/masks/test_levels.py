"""What arrives at the normaliser with scores of 0: which pairs are hidden, and by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.facts.masks.levels import Levels, levels_of
from tests.facts.masks.spelled import CAUSAL, masked

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

PAST = torch.ones(5, 5).tril().bool()


def levels(case: Case) -> Levels:
    return levels_of(case.bench, case.bench.sites[0].all[0])


@pytest.mark.parametrize("name", CAUSAL)
def test_a_mask_however_it_is_spelled(name: str, measured: Measure) -> None:
    text, how, fill = CAUSAL[name]
    found = levels(measured(text=text))
    assert bool((found.visible == PAST).all())
    assert bool((found.hidden == ~PAST).all())
    assert bool((found.level[:, ~PAST] == fill).all())
    assert bool((found.level[:, PAST] == 0).all())
    assert bool(found.follows[:, PAST].all())
    if how == "filled":
        assert not bool(found.follows[:, ~PAST].any())


def test_groups_are_samples_and_heads(measured: Measure) -> None:
    found = levels(measured(text=CAUSAL["filled"][0]))
    assert found.level.shape == (8, 5, 5)
    assert found.group.samples.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found.group.heads.tolist() == [0, 1, 2, 3] * 2
    assert found.group.queries.tolist() == [[0, 1, 2, 3, 4]] * 8


def test_padding_of_one_sample(measured: Measure) -> None:
    text = masked("scores = scores.masked_fill(pad[:, None, None], -1e9)").replace(
        "forward(self, x)", "forward(self, x, pad)"
    )
    call = "torch.randn(2, 5, 24), torch.arange(5)[None] >= torch.tensor([[5], [3]])"
    found = levels(measured(text=text, call=call))
    assert bool(found.visible[:4].all())
    assert set(found.visible[4:].sum(-1).flatten().tolist()) == {3}


def test_a_bias_is_a_level_that_follows(measured: Measure) -> None:
    text = masked("at = torch.arange(T)", "scores = scores - 0.5 * (at[:, None] - at).abs()")
    found = levels(measured(text=text))
    assert bool(found.visible.all()) and bool(found.follows.all())
    assert found.level[3, 4].tolist() == [-2.0, -1.5, -1.0, -0.5, 0.0]


def test_a_row_that_is_hidden_throughout(measured: Measure) -> None:
    text = masked(
        "hidden = torch.ones(T, T).triu().bool()", "scores = scores.masked_fill(hidden, -1e9)"
    )
    found = levels(measured(text=text))
    assert bool(found.hidden[:, 0].all())


def test_weights_masked_behind_the_softmax_are_not_visible(measured: Measure) -> None:
    text = masked("hidden = torch.ones(T, T).triu(1).bool()").replace(
        "        context =", "        weights = weights.masked_fill(hidden, 0)\n        context ="
    )
    found = levels(measured(text=text))
    assert not bool(found.hidden.any())
    assert bool((found.visible == PAST).all())


def test_a_mask_that_is_turned_with_the_scores(measured: Measure) -> None:
    text = masked("gone = torch.arange(T) > 2", "scores = scores.masked_fill(gone[:, None], -1e9)")
    text = text.replace("scores = q @ k.transpose(-2, -1)", "scores = k @ q.transpose(-2, -1)")
    text = text.replace("scores.softmax(dim=-1)", "scores.transpose(-2, -1).softmax(dim=-1)")
    found = levels(measured(text=text))
    assert set(found.visible.sum(-1).flatten().tolist()) == {3}
    assert bool(found.visible[:, :, :3].all())


def test_what_a_dropout_takes_away_is_visible(measured: Measure) -> None:
    text = masked("hidden = torch.ones(T, T).triu(1).bool()").replace(
        "        context =",
        "        weights = F.dropout(weights.masked_fill(hidden, 0), 0.5)\n        context =",
    )
    assert bool((levels(measured(text=text)).visible == PAST).all())
