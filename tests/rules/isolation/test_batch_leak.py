"""MHA601: one sample influences another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    BatchMixing,
    Known,
    SiteFacts,
    SubjectFacts,
    UnknownFactError,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]
Subject: TypeAlias = Callable[..., SubjectFacts]


def mixing(span: Span | None = None, *, intended: bool = False) -> Known[BatchMixing]:
    why = "axis 1 is averaged away"
    fact = BatchMixing(True, 0, why, 0.4123, span, intended)
    return Known(fact, "sample 1 was changed")


def test_samples_mix(check: Check, subject: Subject, at: At) -> None:
    assert check("MHA601", subject(batch=mixing(at(15)))) == [
        Violation(
            "samples influence each other: information crosses axis 0"
            " (the batch, because axis 1 is averaged away)",
            at=at(15),
            here="mixes the samples of the batch",
            why="a prediction must not depend on what else is in the batch",
            help="nn.MultiheadAttention(..., batch_first=True) for (B, T, C), or x.transpose(0, 1)",
            evidence=("sample 1 was changed",),
            confirm="witness: changing one sample moves the output of another by 0.4",
        )
    ]


def test_without_a_place_the_only_site_is_marked(
    check: Check, subject: Subject, site: Site, at: At
) -> None:
    (found,) = check("MHA601", subject(batch=mixing()))
    assert found.at == at(20)
    (found,) = check("MHA601", subject(batch=mixing(), sites=(site(), site())))
    assert found.at == at(1)


def test_without_a_reason(check: Check, subject: Subject) -> None:
    fact = Known(BatchMixing(True, 1, "", 0.1, None))
    (found,) = check("MHA601", subject(batch=fact))
    assert found.message == ("samples influence each other: information crosses axis 1, the batch")


def test_meant(check: Check, subject: Subject) -> None:
    assert check("MHA601", subject(batch=mixing(intended=True))) == []


def test_states_that_mix_where_the_output_does_not(check: Check, subject: Subject) -> None:
    fact = BatchMixing(True, 0, "", 0.2, None, seen_in="states")
    (found,) = check("MHA601", subject(batch=Known(fact, "")))
    assert found.confirm == "witness: changing one sample moves the state of another by 0.2"


def test_without_a_witness_it_is_left_open(check: Check, subject: Subject) -> None:
    fact = Known(BatchMixing(True, 0, "the first axis is the batch", 0.0, None))
    with pytest.raises(UnknownFactError, match="no other sample's output was seen to move"):
        check("MHA601", subject(batch=fact))
