"""MHA402: dropout on the scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    DropoutUse,
    Known,
    SiteFacts,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_on_the_scores(check: Check, site: Site, at: At) -> None:
    uses = (DropoutUse("scores", 0.1, False, at(22)), DropoutUse("weights", 0.1, False, at(23)))
    assert check("MHA402", site(dropouts=Known(uses, "graph"))) == [
        Violation(
            "dropout with rate 0.1 is applied to the scores, before the softmax",
            at=at(22),
            here="drops scores, not weights",
            why="a dropped score is 0, which still gets a weight (NaN where it was -inf), and the"
            " others are scaled up",
            help="weights = dropout(torch.softmax(scores, dim=-1))",
            evidence=("graph",),
            confirm="identity: the dropout's result is what the softmax normalises",
        )
    ]


@pytest.mark.parametrize("place", ["weights", "context", "output"])
def test_elsewhere(check: Check, site: Site, place: str) -> None:
    assert check("MHA402", site(dropouts=Known((DropoutUse(place, 0.1, False, None),)))) == []
