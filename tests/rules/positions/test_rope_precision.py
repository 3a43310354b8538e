"""MHA504: rotary angles in a half type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Violation
from mha_lint.model.numeric_facts import RotationLoss
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def loss(error: float, span: Span | None, **changed: Any) -> Known[RotationLoss]:
    values: dict[str, Any] = {"position": 916, "length": 1024, "cast": 4.9e-4, "recorded": True}
    return Known(
        RotationLoss("float16", error, span=span, **{**values, **changed}), "computed twice"
    )


def test_angles_that_are_off(check: Check, site: Site, at: At) -> None:
    assert check("MHA504", site(rotation_loss=loss(0.25, at(20)))) == [
        Violation(
            "the rotary angles are computed in float16: at position 916, one is off by 0.25 rad",
            at=at(20),
            here="loses 0.25 rad",
            why="cosines and sines kept in float16 cost 5e-04; an angle grows with the position, and"
            " its rounding with it",
            help="positions.float() * frequencies.float(), and cast cos and sin only",
            evidence=("computed twice",),
            confirm="witness: the angle of position 916, computed as here and in float64, differs by"
            " 0.25 rad",
        )
    ]


def test_over_more_positions_than_the_call_has(check: Check, site: Site, at: At) -> None:
    (found,) = check("MHA504", site(rotation_loss=loss(0.125, None, recorded=False)))
    assert found.message == (
        "the rotary angles are computed in float16: at position 916, were there 1024 of them, one is"
        " off by 0.12 rad"
    )
    assert found.at == at(13)


def test_what_casting_costs_is_no_loss(check: Check, site: Site) -> None:
    assert check("MHA504", site(rotation_loss=loss(3e-3, None))) == []
