"""MHA902: more is lost than rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Violation
from mha_lint.model.numeric_facts import HalfLoss
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_more_than_twice(check: Check, site: Site, at: At) -> None:
    loss = HalfLoss("bfloat16", 7.25, 2.0, 7.2e-2, 1e-2, 16, at(31))
    assert check("MHA902", site(half_loss=Known(loss, "16 draws"))) == [
        Violation(
            "in bfloat16 it loses 7.2 times as much to rounding as a straightforward implementation;"
            " up to 2 times is no fault",
            at=at(31),
            here="loses most",
            why="in float64 the site is right: what is lost here is lost to the type alone",
            help="keep scores and weights near 1, and cast down only what is summed already",
            evidence=("16 draws",),
            confirm="witness: over 16 draws of operands the rms error is 7e-02, and 1e-02 for"
            " softmax(q k^T scale) v with every step in bfloat16",
        )
    ]


def test_overflow(check: Check, site: Site, at: At) -> None:
    loss = HalfLoss("float16", math.inf, 2.0, math.inf, 1e-3, 16)
    (found,) = check("MHA902", site(half_loss=Known(loss)))
    assert (
        found.message == "in float16 it overflows where a straightforward implementation does not"
    )
    assert found.at == at(20)


def test_up_to_twice_is_rounding(check: Check, site: Site) -> None:
    loss = HalfLoss("float16", 2.0, 2.0, 2e-3, 1e-3, 16)
    assert check("MHA902", site(half_loss=Known(loss))) == []
    assert HalfLoss("float16", math.nan, 2.0, 0.0, 0.0, 16).exceeded
