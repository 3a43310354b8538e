"""MHA403: the dropout that acts is not the one that was configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from mha_lint.model.facts import Known, SubjectFacts
from mha_lint.model.finding import Label, Violation
from mha_lint.model.numeric_facts import RateFault, TrainingDropout
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Subject: TypeAlias = Callable[..., SubjectFacts]


@pytest.fixture
def found(check: Check, subject: Subject, at: At) -> Callable[..., Violation]:
    """Return the one violation of a fault."""

    def run(fault: RateFault, **changed: Any) -> Violation:
        values = {
            "argument": "p",
            "configured": 0.1,
            "tried": 0.11,
            "span": at(30),
            "kept_at": at(9),
        }
        use = TrainingDropout(fault, **{**values, **changed})
        (violation,) = check("MHA403", subject(training_dropout=Known((use,), "recorded")))
        return violation

    return run


def test_a_rate_that_acts_nowhere(found: Callable[..., Violation], at: At) -> None:
    assert found(RateFault.NEVER) == Violation(
        "p=0.1 is configured, and nothing drops at that rate in training",
        at=at(30),
        here="no dropout acts on these",
        why="the model is regularised otherwise than its configuration says, in training only",
        help="F.dropout(weights, self.p, self.training), or dropout_p=self.p if self.training else 0.0",
        evidence=("recorded",),
        labels=(Label(at(9), "taken up here"),),
        confirm="witness: a call in training mode is the same with p at another rate",
    )


def test_what_rests_on_a_name_says_so(found: Callable[..., Violation]) -> None:
    assert found(RateFault.NEVER, argument="attn_drop", named=True).message == (
        "attn_drop=0.1 is configured, and nothing drops at that rate in training (attn_drop is taken"
        " for the rate of the weights by its name)"
    )


@pytest.mark.parametrize(
    ("fault", "changed", "message", "here"),
    [
        (RateFault.FIXED, {"acting": 0.5}, "the weights are dropped at a rate of 0.5 whatever p is, here 0.1", "drops at 0.5"),
        (RateFault.KEPT, {"acting": 0.89}, "with p=0.11, elements are dropped at a rate of 0.89", "drops at 0.89"),
        (RateFault.OTHER, {"acting": 0.17, "other": "proj_drop"}, "the weights are dropped at proj_drop, and not at p", "drops at proj_drop"),
        (RateFault.TWICE, {"acting": 0.19}, "the weights are dropped twice in training: 0.19 of them in place of 0.1", "drops once more"),
    ],
)  # fmt: skip
def test_other_faults(
    fault: RateFault,
    changed: dict[str, Any],
    message: str,
    here: str,
    found: Callable[..., Violation],
) -> None:
    violation = found(fault, **changed)
    assert (violation.message, violation.here) == (message, here)
    assert violation.confirm is not None and violation.confirm.startswith(
        ("witness: ", "identity: ")
    )


def test_one_place_is_told_once(found: Callable[..., Violation], at: At) -> None:
    assert found(RateFault.KEPT, acting=0.89, kept_at=at(30)).labels == ()
