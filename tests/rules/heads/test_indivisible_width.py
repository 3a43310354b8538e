"""MHA102: num_heads does not divide the width."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import (
    Known,
    SubjectFacts,
    Truncation,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Subject: TypeAlias = Callable[..., SubjectFacts]


def test_channels_are_dropped(check: Check, subject: Subject, at: At) -> None:
    fact = Truncation(26, 4, 24, 2, (1, 2, 13, 26), "the projections are 24 wide", at(10))
    assert check("MHA102", subject(truncation=Known(fact, "26 // 4 = 6"))) == [
        Violation(
            "4 heads do not divide d_model 26: 4 * 6 = 24, remainder 2;"
            " the nearest head counts that do: 2 and 13",
            at=at(10),
            here="the projections are 24 wide",
            why="the integer division rounds down, and the remaining channels take no part",
            help="refuse it: if d_model % num_heads: raise ValueError(...); or use 2 or 13 heads",
            evidence=("26 // 4 = 6",),
            confirm="identity: 4 * 6 = 24, not 26",
        )
    ]


def test_without_a_place_the_subject_is_marked(check: Check, subject: Subject, at: At) -> None:
    fact = Truncation(50, 4, 48, 2, (), "", None)
    (found,) = check("MHA102", subject(truncation=Known(fact)))
    assert found.at == at(1)
    assert found.message == "4 heads do not divide d_model 50: 4 * 12 = 48, remainder 2"
    assert found.here == "2 channels are lost"
    assert found.help == "refuse it: if d_model % num_heads: raise ValueError(...)"


def test_only_larger_head_counts_may_be_valid(check: Check, subject: Subject) -> None:
    fact = Truncation(7, 1, 7, 0, (7, 14), "", None)
    (found,) = check("MHA102", subject(truncation=Known(fact)))
    assert found.message.endswith("the nearest head counts that do: 7")
