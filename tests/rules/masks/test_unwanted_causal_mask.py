"""MHA314: a causal triangle where both directions are due."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Violation
from mha_lint.model.mask_fit_facts import MaskFit, Triangle
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_in_an_encoder(check: Check, site: Site, at: At) -> None:
    one = Triangle("it is called ViT", False, at(24), 5, 5, 10, "query 0 does not see key 1")
    fit = Known(MaskFit(unwanted=one), "scores of 0")
    assert check("MHA314", site(mask_fit=fit)) == [
        Violation(
            "later positions are hidden, 10 of 25 pairs, though both directions are due (judged"
            " from its names and text): it is called ViT",
            at=at(24),
            here="hides later positions",
            why="the first positions are encoded without what follows them",
            help="no causal mask here; --expect causal if it is meant",
            evidence=("scores of 0",),
            confirm="witness: query 0 does not see key 1",
        )
    ]


def test_where_both_directions_are_stated(check: Check, site: Site) -> None:
    one = Triangle("--expect bidirectional", True, None, 5, 5, 10, "so")
    (found,) = check("MHA314", site(mask_fit=Known(MaskFit(unwanted=one), "")))
    assert found.message.endswith("though both directions are due: --expect bidirectional")


def test_nothing_that_does_not_fit(check: Check, site: Site) -> None:
    assert check("MHA314", site(mask_fit=Known(MaskFit(), ""))) == []
