"""MHA206: the weights are normalised twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from mha_lint.model.facts import (
    Known,
    Normaliser,
    SiteFacts,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def normalised(function: str = "softmax", **changed: Any) -> Known[Normaliser]:
    fact = Normaliser(function, ("keys",), (3,), "(B, h, T_q, T_k)", (0.24, 2.91))
    return Known(replace(fact, **changed), "one score was moved")


def test_twice(check: Check, site: Site, at: At) -> None:
    assert check("MHA206", site(normaliser=normalised(times=2))) == [
        Violation(
            "the weights are normalised twice",
            at=at(23),
            here="normalised twice",
            why="the second softmax sees values in 0 ... 1: no weight can exceed another by"
            " more than a factor of 2.72, and masked keys come back",
            help="apply the softmax once, to the scores",
            evidence=("one score was moved",),
            confirm="repeated-softmax",
        )
    ]


def test_more_often(check: Check, site: Site) -> None:
    (found,) = check("MHA206", site(normaliser=normalised(times=3)))
    assert found.message == "the weights are normalised 3 times in a row"


def test_restored_sums_are_fine(check: Check, site: Site) -> None:
    assert check("MHA206", site(normaliser=normalised(times=2, renormalised=True))) == []
