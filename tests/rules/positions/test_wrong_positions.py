"""MHA508: positions that nothing tells apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from mha_lint.model.facts import Known, SiteFacts, SubjectFacts, Unknown, UnknownFactError
from mha_lint.model.finding import Violation
from mha_lint.model.position_facts import PositionBias, RepeatedPositions, Rotary
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]
Subject: TypeAlias = Callable[..., SubjectFacts]


def alike(fault: str, span: Span | None, what: str = "the position embedding") -> RepeatedPositions:
    return RepeatedPositions(fault, what, 4, 5, 3, 7, span)


def test_clamped(check: Check, subject: Subject, at: At) -> None:
    assert check("MHA508", subject(positions=Known(alike("clamped", at(3))))) == [
        Violation(
            "the position embedding is the same for the last positions: 4 and 5 of 7 are alike",
            at=at(3),
            here="positions become alike here",
            why="tokens at positions that are alike cannot be told apart by their place",
            help="one number for each position of the sequence: torch.arange(x.shape[1])",
            confirm="identity: equal tokens at positions 4 and 5 of one sequence stay equal",
        )
    ]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("same", "the position embedding is the same at all 7 positions"),
        (
            "wrapped",
            "the position embedding begins anew within a sequence: positions 4 and 5 are alike",
        ),
        ("batch", "the position embedding follows the sample, and is the same at all 7 positions"),
        ("repeated", "the position embedding is the same at positions 4 and 5 of 7"),
    ],
)
def test_messages(check: Check, subject: Subject, at: At, fault: str, message: str) -> None:
    site = Known(Rotary(()))
    assert isinstance(site, Known)
    (found,) = check("MHA508", subject(positions=Known(alike(fault, None)), sites=()))
    assert (found.message, found.at) == (message, at(1))


def test_rotations_of_equal_layers_are_reported_once(
    check: Check, subject: Subject, site: Site, at: At
) -> None:
    repeated = alike("clamped", at(3), "the rotation")
    layer = site(rotary=Known(Rotary(("q", "k"), repeated=repeated)))
    (found,) = check("MHA508", subject(sites=(layer, layer)))
    assert found.message.startswith("the rotation is the same for the last positions")


def test_attention_over_the_batch_is_another_fault(check: Check, subject: Subject) -> None:
    right = subject(positions=Known(alike("batch", None)))
    assert isinstance(right.batch, Known)
    mixing = Known(replace(right.batch.value, mixes=True))
    assert check("MHA508", replace(right, batch=mixing)) == []


@pytest.mark.parametrize("other", ["rotary", "position_bias"])
def test_one_row_for_all_beside_other_positions(
    check: Check, subject: Subject, site: Site, other: str
) -> None:
    fact = Known(Rotary(("q", "k"))) if other == "rotary" else Known(PositionBias())
    layer = site(**{other: fact})
    right = subject(positions=Known(alike("same", None)), sites=(layer,))
    assert check("MHA508", right) == []


def test_undecided_where_a_rotation_is_unknown(check: Check, subject: Subject, site: Site) -> None:
    layer = site(rotary=Unknown("not followed"))
    with pytest.raises(UnknownFactError, match="not followed"):
        check("MHA508", subject(sites=(layer,)))
