"""MHA401: dropout stays on in eval mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import (
    DropoutUse,
    Known,
    SubjectFacts,
    Unknown,
)
from mha_lint.model.finding import Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Subject: TypeAlias = Callable[..., SubjectFacts]


def test_active_in_eval(check: Check, subject: Subject, at: At) -> None:
    use = DropoutUse("weights", 0.1, True, at(32))
    facts = subject(
        dropouts=Known((use, use), "the recorded call drops"),
        deterministic=Known(False, "two calls differ"),
    )
    assert check("MHA401", facts) == [
        Violation(
            "dropout with rate 0.1 on the weights stays on in eval mode",
            at=at(32),
            here="drops in eval mode too",
            why="the same input gives different outputs, and predictions lose accuracy",
            help="F.dropout(x, p, self.training), or dropout_p=p if self.training else 0.0",
            evidence=("the recorded call drops", "two calls differ"),
            confirm="witness: two calls in eval mode with the same input give different outputs",
        )
    ]


@pytest.mark.parametrize("deterministic", [Known(True), Unknown("not tried")])
def test_the_recording_is_proof_enough(
    check: Check, subject: Subject, at: At, deterministic: Known[bool] | Unknown
) -> None:
    use = DropoutUse("output", 0.25, True, None)
    (found,) = check("MHA401", subject(dropouts=Known((use,)), deterministic=deterministic))
    assert found.at == at(1)
    assert found.confirm == (
        "identity: the call recorded in eval mode applies dropout with rate 0.25"
    )


def test_each_place_is_told(check: Check, subject: Subject, at: At) -> None:
    uses = tuple(DropoutUse("weights", 0.1, True, at(line)) for line in (32, 40))
    found = check("MHA401", subject(dropouts=Known(uses)))
    assert [one.at for one in found] == [at(32), at(40)]


@pytest.mark.parametrize(
    "use", [DropoutUse("weights", 0.1, False, None), DropoutUse("weights", 0.0, True, None)]
)
def test_off_or_without_a_rate(check: Check, subject: Subject, use: DropoutUse) -> None:
    assert check("MHA401", subject(dropouts=Known((use,)))) == []
