"""MHA113: a raw weight is contracted over its output axis."""

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


def failure(kind: str, span: Span | None, detail: str = "Wq is (30, 24)") -> SizeFailure:
    return SizeFailure("n_out=30", "RuntimeError: size mismatch", kind, detail, span)


def test_visible_at_unequal_widths(check: Check, subject: Subject, at: At) -> None:
    failures = (failure("weight-orientation", at(17)),) * 2
    assert check("MHA113", subject(size_failures=Known(failures, "built again"))) == [
        Violation(
            "a weight is contracted over the wrong axis: with n_out=30, Wq is (30, 24)",
            at=at(17),
            here="fits only while the weight is square",
            why="the map is the transpose of what its shape says, unseen while widths are equal",
            help="contract its input axis: x @ weight.T for (out, in), x @ weight for (in, out)",
            evidence=("built again", "with n_out=30: RuntimeError: size mismatch"),
            confirm="witness: with n_out=30 the same call raises RuntimeError: size mismatch",
        )
    ]


def test_without_a_detail_the_error_is_quoted(check: Check, subject: Subject, at: At) -> None:
    failures = Known((failure("weight-orientation", None, detail=""),))
    (found,) = check("MHA113", subject(size_failures=failures))
    assert found.at == at(1)
    assert found.message.endswith("with n_out=30, RuntimeError: size mismatch")


@pytest.mark.parametrize("kind", ["merge-width", "head-width", "other"])
def test_other_failures_belong_to_other_rules(check: Check, subject: Subject, kind: str) -> None:
    assert check("MHA113", subject(size_failures=Known((failure(kind, None),)))) == []
