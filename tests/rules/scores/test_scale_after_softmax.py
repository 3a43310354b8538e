"""MHA203: the scale is applied to the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from mha_lint.model.facts import (
    Kind,
    Known,
    Scale,
    ScaleFactor,
    SiteFacts,
)
from mha_lint.model.finding import Label, Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def scaled(value: float, named: str | None = None, **changed: Any) -> Known[Scale]:
    return Known(replace(Scale(value, 6**-0.5, named, init_ratio=1.02), **changed), "gain")


def moved(**changed: Any) -> Known[Scale]:
    named = {"after": 6**-0.5, "after_named": "1/sqrt(head_dim)"}
    return scaled(**{"value": 1.0, "named": "1", **named, **changed})


def test_after_the_softmax(check: Check, site: Site, at: At) -> None:
    assert check("MHA203", site(scale=moved())) == [
        Violation(
            "the weights are multiplied by 1/sqrt(head_dim) = 0.408 after the softmax,"
            " and the scores are not scaled (head_dim is 6)",
            at=at(23),
            here="scales the weights by 0.408",
            why="the softmax sees unscaled scores, and one query's weights sum to 0.408",
            help="divide the scores by math.sqrt(head_dim) = 2.45, not the weights",
            evidence=("gain",),
            labels=(Label(at(20), "not scaled"),),
            confirm="scale-after",
        )
    ]


def test_the_place_of_the_factor_is_marked(check: Check, site: Site, at: At) -> None:
    factors = (ScaleFactor(6**-0.5, "weights", at(20)),)
    (found,) = check("MHA203", site(scale=moved(factors=factors)))
    assert found.at == at(20)
    assert found.labels == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"after": 1.0},
        {"after_named": None},
        {"after": 0.25, "after_named": "1/num_heads"},
        {"value": 6**-0.5, "right": True},
        {"value": 0.2},
        {"normalised": True},
        {"learned": True},
        {"stated": "qk_scale"},
        {"folded": 0.41},
    ],
)
def test_silent(check: Check, site: Site, changed: dict[str, Any]) -> None:
    assert check("MHA203", site(scale=moved(**changed))) == []


@pytest.mark.parametrize("kind", [Kind.POOLING, Kind.LINEAR, Kind.CHANNEL])
def test_other_kinds_are_not_judged(check: Check, site: Site, kind: Kind) -> None:
    assert check("MHA203", site(scale=moved(), kind=kind)) == []
