"""MHA115: no gradient reaches a projection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SubjectFacts
from mha_lint.model.finding import Violation
from mha_lint.model.numeric_facts import Detached, Learning
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Subject: TypeAlias = Callable[..., SubjectFacts]


def test_a_gradient_that_is_cut_off(check: Check, subject: Subject, at: At) -> None:
    cut = Detached(("q", "k"), ("q.weight", "k.weight"), "cut", 0.14, at(22), ("v", "o"))
    assert check("MHA115", subject(learning=Known(Learning((cut,)), "a backward pass"))) == [
        Violation(
            "no gradient reaches the projection of q and k (q.weight, k.weight) in training mode,"
            " while one reaches v and o",
            at=at(22),
            here="the gradient ends here",
            why="it stays what its initialisation made it; freezing it on purpose is a design that"
            " cannot be told from a mistake",
            help="take detach, .data or no_grad off the path, or freeze all projections alike",
            evidence=("a backward pass",),
            confirm="witness: a change of q and k moves the outputs by 0.14 of their size, and the"
            " gradient of q.weight, k.weight is zero",
        )
    ]


def test_one_that_is_frozen(check: Check, subject: Subject, at: At) -> None:
    frozen = Detached(("v",), ("v.weight",), "frozen", 0.1, None, ("q", "k", "o"))
    (found,) = check("MHA115", subject(learning=Known(Learning((frozen,)))))
    assert found.message == "the projection of v (v.weight) is frozen, while q, k and o are trained"
    assert (found.at, found.here) == (at(1), "frozen here")
    alone = Detached(("v",), ("v.weight",), "frozen", 0.1, None, ("o",))
    (found,) = check("MHA115", subject(learning=Known(Learning((alone,)))))
    assert found.message.endswith("while o is trained")
