"""MHA522: one call changes the result of the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.causal_facts import StateCheck
from mha_lint.model.facts import Known, SubjectFacts, UnknownFactError
from mha_lint.model.finding import Severity, Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Subject: TypeAlias = Callable[..., SubjectFacts]


def test_a_kept_list(check: Check, subject: Subject, at: At) -> None:
    fact = Known(StateCheck(True, 0.2345, "layers.0.seen", at(17)), "called twice")
    assert check("MHA522", subject(state=fact)) == [
        Violation(
            "self.seen keeps something from one call to the next: after a call on other inputs the"
            " output differs by 0.2",
            at=at(17),
            here="is kept for the next call",
            why="a result then depends on the calls before it",
            help="take what came before as an argument and return it, or make it anew in every call",
            evidence=("called twice",),
            confirm="witness: called once at once and once after a call on other inputs, the outputs"
            " differ by 0.2",
        )
    ]


def test_a_design_is_a_note(check: Check, subject: Subject, at: At) -> None:
    fact = Known(StateCheck(True, float("inf"), "mem", at(17), "reset()"), "called twice")
    (found,) = check("MHA522", subject(state=fact))
    assert found.severity is Severity.NOTE
    assert found.message == (
        "self.mem keeps something from one call to the next, on purpose as reset() shows: after a"
        " call on other inputs the output differs in shape"
    )


def test_nothing_to_blame(check: Check, subject: Subject, at: At) -> None:
    (found,) = check("MHA522", subject(state=Known(StateCheck(True, 0.1), "")))
    assert found.message.startswith("the module keeps something")
    assert found.at == at(1)


def test_nothing_is_kept(check: Check, subject: Subject) -> None:
    assert check("MHA522", subject(state=Known(StateCheck(), ""))) == []


def test_random_numbers_are_no_state(check: Check, subject: Subject) -> None:
    fact = Known(StateCheck(True, 0.1, "generator"), "")
    assert check("MHA522", subject(state=fact, deterministic=Known(False, "drawn"))) == []


def test_unknown(check: Check, subject: Subject) -> None:
    with pytest.raises(UnknownFactError):
        check("MHA522", subject())
