"""MHA521: cached decoding differs from one call on the whole sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.causal_facts import CacheCheck, Misalignment
from mha_lint.model.facts import Known, SubjectFacts, UnknownFactError
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Subject: TypeAlias = Callable[..., SubjectFacts]


def departing(cause: str, span: Span | None = None, detail: str = "") -> Known[CacheCheck]:
    fact = CacheCheck("past", False, 5, 0.2617, 0.54, cause, span, detail)
    return Known(fact, "5 positions in one call, then one at a time")


def test_a_wrong_position(check: Check, subject: Subject, at: At) -> None:
    fact = departing("query", at(10), "the query of the new position differs")
    assert check("MHA521", subject(cache=fact)) == [
        Violation(
            "decoding with past differs from one call on the whole sequence: the new query is"
            " counted from another position (output 5, with the positions before it cached, differs"
            " by 0.3 with weights and inputs drawn anew)",
            at=at(10),
            here="the query of the new position differs",
            why="the model is trained on whole sequences and generates with the cache",
            help="count new positions from the length of the cache, not from 0",
            evidence=("5 positions in one call, then one at a time",),
            confirm="witness: output 5, with the positions before it cached, differs by 0.3"
            " with weights and inputs drawn anew",
        )
    ]


@pytest.mark.parametrize(
    ("cause", "said", "helped"),
    [
        ("keys lost", "keys are missing", "concatenate the cached keys and values"),
        ("unread", "what is cached is never read", "concatenate the cached keys and values"),
        ("order", "past and present are joined in another order", "torch.cat([past, new]"),
        ("swapped", "cached keys and values come back in each other's place", "return keys and"),
        ("stored keys", "the cached keys are not those of the whole", "cache keys either before"),
        ("stored values", "the values are not those of the whole", "concatenate values as"),
        ("states", "the new position is counted anew in what is added", "count new positions"),
        ("key", "the new key is counted from another position", "count new positions"),
        ("bias", "the bias on the scores is made for other positions", "count new positions"),
        ("mask", "the mask of the step hides other keys", "make the mask for the last rows"),
        ("", "the step computes something else", "count new positions"),
    ],
)
def test_each_cause(check: Check, subject: Subject, cause: str, said: str, helped: str) -> None:
    (found,) = check("MHA521", subject(cache=departing(cause)))
    assert f"whole sequence: {said}" in found.message
    assert found.help.startswith(helped)
    assert found.at == Span("attention.py", 1)
    assert found.here == "differs from the whole sequence"


def test_a_cache_that_is_refused(check: Check, subject: Subject, at: At) -> None:
    fact = Known(CacheCheck("past", False, 5, float("inf"), cause="axis", span=at(16)), "error")
    (found,) = check("MHA521", subject(cache=fact))
    assert found.message == (
        "what the call returns as past cannot be passed back: past and present are joined along"
        " another axis than that of positions"
    )
    assert (found.at, found.evidence) == (at(16), ("error",))
    assert found.confirm == "witness: with 5 positions cached, the next step raises an error"


def test_a_misplaced_triangle_is_another_rule(check: Check, subject: Subject) -> None:
    one = Misalignment(0, None, 1, 6, 0, 5, hidden=True)
    fact = Known(CacheCheck("past", False, 5, 0.3, 0.3, "mask", misaligned=(one,)), "")
    assert check("MHA521", subject(cache=fact)) == []


def test_steps_that_agree(check: Check, subject: Subject) -> None:
    assert check("MHA521", subject(cache=Known(CacheCheck("past", True), ""))) == []


def test_unknown(check: Check, subject: Subject) -> None:
    with pytest.raises(UnknownFactError):
        check("MHA521", subject())
