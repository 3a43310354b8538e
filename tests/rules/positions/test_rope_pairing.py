"""MHA501: table and rotation pair channels differently."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Label, Violation
from mha_lint.model.position_facts import PairFault, Rotary, WrongPairs
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def pairs(fault: PairFault, rotation: Span, table: Span | None = None) -> Known[Rotary]:
    kept = (0.1, 1.4) if fault is not PairFault.TORN else (1.0, 1.0)
    wrong = WrongPairs(fault, ("q", "k"), "it is so at position 3", kept, rotation, table)
    return Known(Rotary(("q", "k"), pairs=wrong), "pairs")


def test_a_table_for_other_pairs(check: Check, site: Site, at: At) -> None:
    assert check("MHA501", site(rotary=pairs(PairFault.ANGLES, at(13), at(5)))) == [
        Violation(
            "the table of angles pairs other channels than the rotation does: it is so at position 3",
            at=at(5),
            here="laid out for other pairs",
            why="products of queries and keys do not depend on their distance alone",
            help="torch.cat((angles, angles), -1) for pairs of halves,"
            " angles.repeat_interleave(2, -1) for pairs of neighbours",
            evidence=("pairs",),
            labels=(Label(at(13), "is rotated here"),),
            confirm="identity: at some position a vector of length 1 becomes 0.1, another 1.4 long",
        )
    ]


@pytest.mark.parametrize(
    ("fault", "start"),
    [
        (PairFault.SIGNS, "the rotation lacks a minus sign"),
        (PairFault.PARTNERS, "the rotation puts one channel into several pairs"),
        (PairFault.ALONE, "the rotation adds each channel to itself, not to its partner"),
        (PairFault.TORN, "the rotation pairs channels of different heads"),
    ],
)
def test_rotations(check: Check, site: Site, at: At, fault: PairFault, start: str) -> None:
    (found,) = check("MHA501", site(rotary=pairs(fault, at(13))))
    assert found.message == f"{start}: it is so at position 3"
    assert (found.at, found.here, found.labels) == (at(13), "no rotation", ())
    assert (found.confirm is None) == (fault is PairFault.TORN)


def test_silent(check: Check, site: Site) -> None:
    assert check("MHA501", site(rotary=Known(Rotary(("q", "k"))))) == []
