"""MHA205: no softmax between scores and values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from mha_lint.model.facts import (
    Kind,
    Known,
    Normaliser,
    NotApplicable,
    Scale,
    SiteFacts,
    Unknown,
)
from mha_lint.model.finding import Severity, Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def normalised(function: str = "softmax", **changed: Any) -> Known[Normaliser]:
    fact = Normaliser(function, ("keys",), (3,), "(B, h, T_q, T_k)", (0.24, 2.91))
    return Known(replace(fact, **changed), "one score was moved")


def test_scaled_scores(check: Check, site: Site, at: At) -> None:
    fact = normalised("none", axes=(), axis=(), row_sums=(-3.1, 2.91))
    facts = site(normaliser=fact)
    del facts.info.spans["softmax"]
    assert check("MHA205", facts) == [
        Violation(
            "the scaled scores are multiplied with V without a softmax",
            at=at(24),
            here="no softmax before this",
            why="one query's weights should be positive and sum to 1;"
            " here they sum to -3.1 ... 2.91",
            help="weights = torch.softmax(scores, dim=-1)",
            evidence=("one score was moved",),
            severity=Severity.ERROR,
            confirm="normaliser",
        )
    ]


@pytest.mark.parametrize(
    "scale", [Known(Scale(1.0, 6**-0.5, "1")), Unknown("no gain"), NotApplicable("no q k^T")]
)
def test_unscaled_products_are_a_warning(
    check: Check, site: Site, scale: Known[Scale] | Unknown | NotApplicable
) -> None:
    facts = site(normaliser=normalised("none", row_sums=None), scale=scale)
    (found,) = check("MHA205", facts)
    assert found.severity is Severity.WARNING
    assert found.message == (
        "the scores are multiplied with V without a softmax; some designs mean to"
    )
    assert found.why == "one query's weights should be positive and sum to 1"


@pytest.mark.parametrize(
    ("function", "named"),
    [
        ("sigmoid", "sigmoid"),
        ("relu", "ReLU"),
        ("softplus", "softplus"),
        ("sum", "division by the plain sum"),
        ("other", "another function"),
    ],
)
def test_other_functions_are_a_warning(
    check: Check, site: Site, at: At, function: str, named: str
) -> None:
    (found,) = check("MHA205", site(normaliser=normalised(function)))
    assert found.message == (f"{named} stands in the place of the softmax; some designs mean to")
    assert (found.severity, found.at) == (Severity.WARNING, at(23))
    assert found.here == "not a softmax"


@pytest.mark.parametrize("kind", [Kind.LINEAR, Kind.CHANNEL])
def test_other_kinds_are_not_judged(check: Check, site: Site, kind: Kind) -> None:
    assert check("MHA205", site(normaliser=normalised("none"), kind=kind)) == []


def test_positive_weights_that_sum_to_one_are_fine(check: Check, site: Site) -> None:
    assert check("MHA205", site(normaliser=normalised("simplex", row_sums=(1.0, 1.0)))) == []


def test_a_mean_over_the_keys_is_a_design(check: Check, site: Site) -> None:
    for function in ("none", "relu"):
        assert check("MHA205", site(normaliser=normalised(function, averaged=True))) == []
