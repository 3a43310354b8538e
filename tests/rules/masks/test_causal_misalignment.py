"""MHA310: a causal mask over more keys than queries starts at the wrong key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.causal_facts import CacheCheck, Causality, Misalignment
from mha_lint.model.facts import Known, NotApplicable, SubjectFacts, Unknown, UnknownFactError
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Subject: TypeAlias = Callable[..., SubjectFacts]

NO_CACHE = NotApplicable("no cache")


def recorded(*found: Misalignment) -> Known[Causality]:
    return Known(Causality(("",), misaligned=found), "measured at the sites")


def test_a_step_that_sees_the_first_key_alone(check: Check, subject: Subject, at: At) -> None:
    one = Misalignment(0, at(24), 1, 6, 0, 5, hidden=True, is_causal=True)
    assert check("MHA310", subject(causality=recorded(one), cache=NO_CACHE)) == [
        Violation(
            "the causal mask of 1 query to 6 keys is aligned to the wrong key: query 0 sees key 0"
            " alone, and not its own; it should see keys 0 to 5, its own",
            at=at(24),
            here="starts at key 0, not at key 5",
            why="with a cache the new queries stand behind all cached keys",
            help="is_causal counts from the first key: pass attn_mask="
            "torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)",
            confirm="identity: query 0 gives key 5, its own, the weight 0",
        )
    ]


def test_a_chunk_that_sees_too_much(check: Check, subject: Subject, at: At) -> None:
    one = Misalignment(0, at(24), 3, 8, 6, 5, hidden=False)
    (found,) = check("MHA310", subject(causality=recorded(one), cache=NO_CACHE))
    assert found.message == (
        "the causal mask of 3 queries to 8 keys is aligned to the wrong key: query 0 sees keys 0 to"
        " 6; it should see keys 0 to 5, its own"
    )
    assert found.help.startswith("shift the triangle by T_k - T_q")
    assert found.confirm == "identity: query 0 sees key 6, and its own is 5"


def test_a_step_that_was_made(check: Check, subject: Subject, at: At) -> None:
    one = Misalignment(0, at(24), 1, 6, 0, 5, hidden=True, made="a step with 5 positions cached")
    cache = Known(CacheCheck("past", False, 5, 0.42, 0.3, "mask", misaligned=(one,)), "steps")
    (found,) = check("MHA310", subject(causality=recorded(), cache=cache))
    assert found.message.startswith(
        "the causal mask of 1 query to 6 keys (a step with 5 positions cached) is aligned"
    )
    assert found.evidence == ("steps",)
    assert found.confirm == (
        "witness: decoded step by step, output 5 differs by 0.4 from that of one call on the whole"
        " sequence"
    )


def test_layers_of_one_line_are_told_once(check: Check, subject: Subject, at: At) -> None:
    two = [Misalignment(n, at(24), 1, 6, 0, 5, hidden=True) for n in (0, 1)]
    assert len(check("MHA310", subject(causality=recorded(*two), cache=NO_CACHE))) == 1


def test_a_right_subject(check: Check, subject: Subject) -> None:
    assert check("MHA310", subject(causality=recorded(), cache=NO_CACHE)) == []
    agrees = Known(CacheCheck("past", True), "")
    assert check("MHA310", subject(causality=recorded(), cache=agrees)) == []


def test_unknown(check: Check, subject: Subject) -> None:
    with pytest.raises(UnknownFactError, match="not measured"):
        check("MHA310", subject(cache=NO_CACHE))
    assert check("MHA310", subject(causality=recorded(), cache=Unknown("refused"))) == []
