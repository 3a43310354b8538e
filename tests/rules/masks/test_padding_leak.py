"""MHA312: padded positions influence real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SubjectFacts
from mha_lint.model.finding import Violation
from mha_lint.model.mask_fit_facts import PaddingLeak
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Subject: TypeAlias = Callable[..., SubjectFacts]


def leak(span: Span | None) -> Known[PaddingLeak | None]:
    found = PaddingLeak(
        "ids != 0 is used elsewhere", span, "", "position 3 of sample 0", "the pooled output", 0.14
    )
    return Known(found, "padded positions were moved")


def test_padding_that_is_not_hidden(check: Check, subject: Subject, at: At) -> None:
    assert check("MHA312", subject(padding=leak(at(22)))) == [
        Violation(
            "padding is not hidden here: moving position 3 of sample 0, which is padded, moves the"
            " pooled output (ids != 0 is used elsewhere)",
            at=at(22),
            here="attends to padded keys",
            why="a result must not depend on how long the other samples of the batch are",
            help="hide padded keys: attn_mask=real[:, None, None, :], or key_padding_mask=~real",
            evidence=("padded positions were moved",),
            confirm="witness: moving position 3 of sample 0 moves the pooled output by 0.1",
        )
    ]


def test_without_a_place_the_class_is_marked(check: Check, subject: Subject, at: At) -> None:
    (found,) = check("MHA312", subject(padding=leak(None)))
    assert found.at == at(1)


def test_padding_that_is_hidden(check: Check, subject: Subject) -> None:
    assert check("MHA312", subject(padding=Known(None, ""))) == []


def test_zeros_that_stay_among_the_keys(check: Check, subject: Subject, at: At) -> None:
    zeroed = PaddingLeak("lengths", at(22), "", "position 4 of sample 1", "the output", 0.2, True)
    (found,) = check("MHA312", subject(padding=Known(zeroed, "")))
    assert found.message == (
        "padding is not hidden here: hiding the key of position 4 of sample 1, which is padded, moves"
        " the output (it is set to 0 before, and a key of 0 has a weight as well) (lengths)"
    )
    assert found.confirm == (
        "witness: hiding the key of position 4 of sample 1 moves the output by 0.2"
    )
