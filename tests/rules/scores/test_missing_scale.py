"""MHA201: the scores are not scaled at all."""

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
    Unknown,
)
from mha_lint.model.finding import Label, Severity, Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def scaled(value: float, named: str | None = None, **changed: Any) -> Known[Scale]:
    return Known(replace(Scale(value, 6**-0.5, named, init_ratio=1.02), **changed), "gain")


def test_no_scale(check: Check, site: Site, at: At) -> None:
    assert check("MHA201", site(scale=scaled(1.0, "1"))) == [
        Violation(
            "the scores are not scaled: head_dim is 6, so 1/sqrt(head_dim) = 0.408 is due",
            at=at(20),
            here="not scaled",
            why="unscaled scores spread 2.45 times too wide, and the softmax saturates",
            help="divide by math.sqrt(head_dim) = 2.45 before the softmax",
            evidence=(
                "gain",
                "the initial weights do not make up for it: for the width that it reads, W_q starts"
                " 1.02 times as large as W_k, not 0.408 times",
            ),
            confirm="scale",
        )
    ]


def test_without_initial_weights_it_is_a_warning(check: Check, site: Site) -> None:
    (found,) = check("MHA201", site(scale=scaled(1.0, "1", init_ratio=None)))
    assert found.severity is Severity.WARNING
    assert found.evidence == ("gain",)
    assert found.message == (
        "the scores are not scaled: head_dim is 6, so 1/sqrt(head_dim) = 0.408 is due,"
        " unless the initial weights, which could not be compared, hold it"
    )


def test_factors_that_cancel_out(check: Check, site: Site, at: At) -> None:
    factors = (ScaleFactor(0.5, "q", at(13)), ScaleFactor(2.0, "scores", at(21)))
    (found,) = check("MHA201", site(scale=scaled(1.0, "1", factors=factors)))
    assert found.message.startswith("the scores are not scaled (its factors cancel out): ")
    assert found.labels == (
        Label(at(13), "times 0.5 on q"),
        Label(at(21), "times 2 on scores"),
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"right": True},
        {"normalised": True},
        {"learned": True},
        {"stated": "qk_scale"},
        {"folded": 0.41},
        {"expected": 1.0},
        {"value": 0.25},
        {"after": 0.408, "after_named": "1/sqrt(head_dim)"},
    ],
)
def test_silent(check: Check, site: Site, changed: dict[str, Any]) -> None:
    assert check("MHA201", site(scale=scaled(**{"value": 1.0, "named": "1", **changed}))) == []


def test_weights_scaled_by_something_else_do_not_excuse_it(check: Check, site: Site) -> None:
    scale = scaled(1.0, "1", after=0.5, after_named="1/sqrt(num_heads)")
    assert len(check("MHA201", site(scale=scale))) == 1


@pytest.mark.parametrize("kind", [Kind.POOLING, Kind.LINEAR, Kind.CHANNEL])
def test_other_kinds_are_not_judged(check: Check, site: Site, kind: Kind) -> None:
    assert check("MHA201", site(scale=Unknown("no scores"), kind=kind)) == []
