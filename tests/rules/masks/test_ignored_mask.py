"""MHA307: masks without any effect on attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import BranchMask, Known, NotApplicable, SiteFacts, SubjectFacts
from mha_lint.model.finding import Label, Severity, Violation
from mha_lint.model.mask_facts import IgnoredMask
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]
Subject: TypeAlias = Callable[..., SubjectFacts]


def test_an_argument(check: Check, subject: Subject, at: At) -> None:
    mask = IgnoredMask("pad_mask", "unread", (2, 5), "bool", ("pad_mask",), True, at(20), None)
    assert check("MHA307", subject(ignored_masks=Known((mask,), "searched"))) == [
        Violation(
            "the argument pad_mask (bool, shape (2, 5)) has no effect on attention",
            at=at(20),
            here="attends without it",
            why="the code looks as if something were hidden, and every key takes part",
            help="pass the mask on to the attention, or fill the scores with it",
            evidence=("searched",),
            confirm="identity: in the recorded graph nothing that the outputs depend on reads the"
            " argument",
        )
    ]


def test_a_form_without_a_name(check: Check, subject: Subject, at: At) -> None:
    mask = IgnoredMask("flags", "unread", (2, 5), "bool", ("flags",), False, at(20), None)
    (found,) = check("MHA307", subject(ignored_masks=Known((mask,))))
    assert found.severity is Severity.WARNING
    assert "flags (bool, shape (2, 5)), which looks like a mask by its form, has" in found.message


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            "discarded",
            "the result of masking is thrown away: the mask (bool, shape (5, 5)) hides nothing",
        ),
        (
            "built",
            "a mask made from lengths (bool, shape (5, 5)) is built, and attention does not get it",
        ),
    ],
)
def test_masks_made_in_the_call(
    how: str, message: str, check: Check, subject: Subject, at: At
) -> None:
    mask = IgnoredMask("", how, (5, 5), "bool", ("lengths",), True, at(20), at(11))
    (found,) = check("MHA307", subject(ignored_masks=Known((mask,))))
    assert found.message == message
    assert found.labels == (Label(at(11), "made here"),)
    assert found.severity is None


@pytest.mark.parametrize(
    ("future", "apart", "count"), [(False, True, 1), (True, True, 0), (False, False, 0)]
)
def test_a_branch_that_forgets_padding(
    check: Check, site: Site, subject: Subject, at: At, future: bool, apart: bool, count: int
) -> None:
    branch = BranchMask("fast=False", future, 10, at(24), at(22), apart)
    facts = subject(
        sites=(site(branch_masks=Known((branch,))),),
        ignored_masks=NotApplicable("no mask") if count else Known(()),
    )
    found = check("MHA307", facts)
    assert [(f.at, f.branch) for f in found] == [(at(24), "fast=False")] * count
    for one in found:
        assert one.message == (
            "with fast=False a mask has no effect: 10 pairs of one head are visible that the other"
            " branch hides"
        )
        assert one.labels == (Label(at(22), "masked here, on the other branch"),)
