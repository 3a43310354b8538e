"""MHA118: values in another order than their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Severity, Violation
from mha_lint.model.position_facts import Pairing
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_values_reversed(check: Check, site: Site, at: At) -> None:
    pairing = Pairing(False, 0, 0, 6, None, "v", at(9))
    assert check("MHA118", site(pairing=Known(pairing, "measured"))) == [
        Violation(
            "the values stand in another order than the keys: key 0 is made from position 0, its"
            " value from 6",
            at=at(9),
            here="changes the order of the values alone",
            why="the weight of a key then fetches what stands at another position",
            help="bring the keys into the same order, or leave the values as they are",
            evidence=("measured",),
            severity=Severity.ERROR,
            confirm="identity: key 0 is made from position 0, its value from 6",
        )
    ]


def test_all_one_step_on_may_be_meant(check: Check, site: Site, at: At) -> None:
    (found,) = check("MHA118", site(pairing=Known(Pairing(False, 0, 6, 0, 1, "k", at(8)))))
    assert (found.severity, found.at) == (Severity.WARNING, at(8))
    assert found.message == (
        "the keys stand in another order than the values: key 0 is made from position 6, its value"
        " from 0"
    )


def test_without_a_line_it_is_where_they_are_summed(check: Check, site: Site) -> None:
    facts = site(pairing=Known(Pairing(False, 0, 0, 6)))
    (found,) = check("MHA118", facts)
    assert found.at == facts.info.at("v", "value")


def test_paired(check: Check, site: Site) -> None:
    assert check("MHA118", site(pairing=Known(Pairing(True)))) == []
