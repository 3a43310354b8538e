"""MHA502: rotated along heads or samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Violation
from mha_lint.model.position_facts import Rotary, WrongTurnAxis
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_by_head(check: Check, site: Site, at: At) -> None:
    axis = WrongTurnAxis("heads", ("q", "k"), "head 2 is turned by 2 rad", at(14))
    fact = Known(Rotary(("q", "k"), axis=axis), "pairs")
    assert check("MHA502", site(rotary=fact)) == [
        Violation(
            "queries and keys are rotated by their head, not by their position:"
            " head 2 is turned by 2 rad",
            at=at(14),
            here="the angles run along the heads",
            why="such turns cancel in q k^T: the order of the tokens is lost",
            help="rotate (B, h, T, d), or give the angles the shape (T, 1, d) for (B, T, h, d)",
            evidence=("pairs",),
            confirm="identity: equal queries and keys of one head stay equal at all positions",
        )
    ]


def test_by_sample(check: Check, site: Site, at: At) -> None:
    axis = WrongTurnAxis("samples", ("q",), "sample 1 is turned", None)
    (found,) = check("MHA502", site(rotary=Known(Rotary(("q",), axis=axis))))
    assert found.message.startswith("queries are rotated by their sample, not by their position")
    assert found.at == at(10)


def test_silent(check: Check, site: Site) -> None:
    assert check("MHA502", site(rotary=Known(Rotary(("q", "k"))))) == []
