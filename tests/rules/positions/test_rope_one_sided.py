"""MHA507: queries and keys are not rotated alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Label, Violation
from mha_lint.model.position_facts import Rotary, UnevenTurns
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def uneven(fault: str, at: At, turned: str = "k", shift: int = 0) -> Known[Rotary]:
    other = "q" if turned == "k" else "k"
    span = None if fault == "one-sided" else at(16)
    found = UnevenTurns(fault, turned, other, shift, "it is so at position 3", at(17), span)
    return Known(Rotary(("q", "k"), uneven=found), "pairs")


def test_one_side(check: Check, site: Site, at: At) -> None:
    assert check("MHA507", site(rotary=uneven("one-sided", at, "q"))) == [
        Violation(
            "only the queries are rotated by position, the keys are not: it is so at position 3",
            at=at(17),
            here="rotates the queries only",
            why="the score of query i and key j is no function of the distance i - j",
            help="rotate q and k with the same angles, each by its own position",
            evidence=("pairs",),
            confirm="identity: it is so at position 3",
        )
    ]


@pytest.mark.parametrize(
    ("fault", "shift", "start"),
    [
        ("opposite", 0, "queries and keys are rotated in opposite directions"),
        ("shifted", 1, "keys are rotated as if they stood one position aside"),
        ("shifted", -3, "keys are rotated as if they stood 3 positions aside"),
        ("different", 0, "queries and keys of one position are rotated by different angles"),
    ],
)
def test_both_sides(check: Check, site: Site, at: At, fault: str, shift: int, start: str) -> None:
    (found,) = check("MHA507", site(rotary=uneven(fault, at, shift=shift)))
    assert found.message == f"{start}: it is so at position 3"
    assert (found.at, found.here) == (at(17), "rotates the keys")
    assert found.labels == (Label(at(16), "queries"),)


def test_exchanged_keys_are_another_fault(check: Check, site: Site, at: At) -> None:
    right = site()
    assert isinstance(right.roles, Known)
    roles = Known(replace(right.roles.value, exchanged="the values are rotated"))
    facts = replace(right, roles=roles, rotary=uneven("one-sided", at))
    assert check("MHA507", facts) == []


def test_silent(check: Check, site: Site) -> None:
    assert check("MHA507", site(rotary=Known(Rotary(("q", "k"))))) == []
