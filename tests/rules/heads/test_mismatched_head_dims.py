"""MHA103: split or merge widths contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    Known,
    SizeFailure,
    SubjectFacts,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Subject: TypeAlias = Callable[..., SubjectFacts]


def failure(kind: str, span: Span | None, detail: str = "24 channels are given") -> SizeFailure:
    return SizeFailure("in_width=30", "RuntimeError: shape is invalid", kind, detail, span)


def test_merge_to_a_foreign_width(check: Check, subject: Subject, at: At) -> None:
    facts = subject(size_failures=Known((failure("merge-width", at(25)),), "built again"))
    assert check("MHA103", facts) == [
        Violation(
            "heads are merged to a width that is not theirs: with in_width=30,"
            " 24 channels are given",
            at=at(25),
            here="works only while the widths are equal",
            why="arguments that may differ must not be taken for one another",
            help="take the width from the heads: context.transpose(1, 2).flatten(2)",
            evidence=("built again", "with in_width=30: RuntimeError: shape is invalid"),
            confirm="witness: with in_width=30 the same call raises RuntimeError: shape is invalid",
        )
    ]


def test_split_by_a_contradicting_size(check: Check, subject: Subject, at: At) -> None:
    facts = subject(size_failures=Known((failure("head-width", None, detail=""),)))
    (found,) = check("MHA103", facts)
    assert found.message == (
        "heads are split by a size that contradicts the others: with in_width=30,"
        " RuntimeError: shape is invalid"
    )
    assert found.at == at(1)
    assert found.help == ("take both sizes from one place: x.unflatten(-1, (num_heads, head_dim))")


def test_one_place_is_told_once(check: Check, subject: Subject, at: At) -> None:
    twice = (failure("merge-width", at(25)), failure("merge-width", at(25)))
    assert len(check("MHA103", subject(size_failures=Known(twice)))) == 1


@pytest.mark.parametrize("kind", ["weight-orientation", "other"])
def test_other_failures_belong_to_other_rules(check: Check, subject: Subject, kind: str) -> None:
    assert check("MHA103", subject(size_failures=Known((failure(kind, None),)))) == []
