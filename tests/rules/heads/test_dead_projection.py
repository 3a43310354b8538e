"""MHA114: a projection that begins as one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SubjectFacts
from mha_lint.model.finding import Violation
from mha_lint.model.numeric_facts import Dead, Learning
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Subject: TypeAlias = Callable[..., SubjectFacts]


def test_a_pair_at_zero(check: Check, subject: Subject, at: At) -> None:
    dead = Dead("q", "q.weight", 0.0, 0.0, ("q", "k"), at(8))
    assert check("MHA114", subject(learning=Known(Learning(dead=(dead,)), "a backward pass"))) == [
        Violation(
            "the weights of q and k are zero at first (q.weight), where no gradient reaches either",
            at=at(8),
            here="zero, and stays so",
            why="each is multiplied by the other: with both at zero neither can leave it",
            help="start one of them at random, as nn.Linear does by itself",
            evidence=("a backward pass",),
            confirm="witness: with all other parameters drawn at random, the gradient of q.weight is"
            " 0 throughout",
        )
    ]


def test_one_alone(check: Check, subject: Subject, at: At) -> None:
    dead = Dead("v", "up.weight", 0.0, 0.0, ("v",), None)
    (found,) = check("MHA114", subject(learning=Known(Learning(dead=(dead,)))))
    assert (
        found.message
        == "the weight of v is zero at first (up.weight), where no gradient reaches it"
    )
    assert found.at == at(1)


def test_another_number(check: Check, subject: Subject, at: At) -> None:
    dead = Dead("k", "k.weight", 0.25, 1.0, ("k", "v"), at(9))
    (found,) = check("MHA114", subject(learning=Known(Learning(dead=(dead,)))))
    assert found.message == (
        "all entries of k.weight (k, v) are 0.25 at first: its channels are all the same"
    )
    assert (found.at, found.here) == (at(9), "0.25 throughout")
