"""MHA506: a relative shift puts rows of other queries into place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Violation
from mha_lint.model.position_facts import PositionBias, WrongShift
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_a_row_of_the_next_query(check: Check, site: Site, at: At) -> None:
    shift = WrongShift(0, 2, 1, 15, 49, at(19))
    assert check("MHA506", site(position_bias=Known(PositionBias(shift=shift), "levels"))) == [
        Violation(
            "the relative shift mixes rows: the score of query 0 and key 2 holds the product of"
            " query 1",
            at=at(19),
            here="rows of other queries end up here",
            why="15 of 49 visible scores of one head depend on another query",
            help="use all 2T - 1 relative positions, or hide the keys behind each query",
            evidence=("levels",),
            confirm="witness: changing query 1 alone moves score (0, 2)",
        )
    ]


def test_padding_at_the_own_place(check: Check, site: Site, at: At) -> None:
    shift = WrongShift(3, 3, -1, 7, 28, at(19))
    (told,) = check("MHA506", site(position_bias=Known(PositionBias(shift=shift), "levels")))
    assert told.message == (
        "the relative shift is off by one: the score of query 3 and key 3 holds padding"
    )
    assert told.at == at(19)
    assert told.confirm == "witness: no relative product moves score (3, 3)"


def test_silent(check: Check, site: Site) -> None:
    assert check("MHA506", site(position_bias=Known(PositionBias()))) == []
