"""MHA505: a linear bias with the wrong sign, slopes or distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Severity, Violation
from mha_lint.model.position_facts import PositionBias, SlopeFault, WrongSlopes
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def slopes(fault: SlopeFault, span: Span | None, *, sure: bool = True) -> Known[PositionBias]:
    found = WrongSlopes(fault, (-0.5, -0.25), (0.0625, 2**-8), "head 0 is so", span, sure)
    return Known(PositionBias(found), "levels")


def test_a_wrong_sign(check: Check, site: Site, at: At) -> None:
    assert check("MHA505", site(position_bias=slopes(SlopeFault.SIGN, at(21)))) == [
        Violation(
            "the linear bias favours far keys: head 0 is so",
            at=at(21),
            here="the bias comes from here",
            why="keys are preferred by something else than how near they are",
            help="subtract slope * |i - j|",
            evidence=(
                "the bias rises towards the query by -0.5, -0.25; ALiBi by 0.0625, 0.003906",
                "levels",
            ),
            confirm="identity: head 0 is so",
        )
    ]


@pytest.mark.parametrize(
    ("fault", "message", "help_"),
    [
        (SlopeFault.FUTURE, "the linear bias favours the keys furthest behind the query",
         "take the absolute distance |i - j|, or hide later keys"),
        (SlopeFault.SAME, "the linear bias is the same in all heads",
         "the slopes are 0.0625, 0.003906"),
        (SlopeFault.ROWS, "the slopes of the linear bias run along the queries, not along the heads",
         "give the slopes the shape (h, 1, 1)"),
        (SlopeFault.OFFSET, "the linear bias counts distances from another place than the query's",
         "query i is key i + T_k - T_q where earlier keys are cached"),
        (SlopeFault.FLAT, "the linear bias is the same for all keys, and cancels in the softmax",
         "make the positions from the number of keys, not of queries"),
    ],
)  # fmt: skip
def test_messages(check: Check, site: Site, fault: SlopeFault, message: str, help_: str) -> None:
    (found,) = check("MHA505", site(position_bias=slopes(fault, None)))
    assert (found.message, found.help) == (f"{message}: head 0 is so", help_)
    assert found.severity is None


def test_slopes_of_a_possible_design_are_a_warning(check: Check, site: Site, at: At) -> None:
    (found,) = check("MHA505", site(position_bias=slopes(SlopeFault.SLOPES, None, sure=False)))
    assert found.severity is Severity.WARNING
    assert found.at == at(20)


def test_silent(check: Check, site: Site) -> None:
    assert check("MHA505", site(position_bias=Known(PositionBias()))) == []
