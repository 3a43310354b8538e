"""MHA309: a later position influences an earlier one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from mha_lint.model.causal_facts import CausalFault, Causality, Leak
from mha_lint.model.facts import (
    BranchMask,
    Known,
    Layout,
    LayoutKind,
    NotApplicable,
    SiteFacts,
    SubjectFacts,
    UnknownFactError,
    UnusedInput,
)
from mha_lint.model.finding import Label, Severity, Violation
from mha_lint.model.mask_facts import Masking, MaskNumber
from mha_lint.model.position_facts import HeadGroups, WrongRepeat
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SubjectFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]
Subject: TypeAlias = Callable[..., SubjectFacts]

LEAK = Leak("x", 5, 2, 0.3217)


def faulty(*faults: CausalFault) -> Known[Causality]:
    return Known(Causality(("open",), False, LEAK, faults), "positions were moved")


def test_no_mask_where_a_name_asks_for_one(check: Check, subject: Subject, at: At) -> None:
    fault = CausalFault("open", 0, at(23), LEAK, "class name GPT")
    assert check("MHA309", subject(causality=faulty(fault))) == [
        Violation(
            "no mask hides later positions: moving position 5 of x changes output 2 by 0.3"
            " (meant to be causal by its class name GPT alone)",
            at=at(23),
            here="sees all positions",
            why="the model reads in training what it is to predict, and has nothing of it when it"
            " generates",
            help="hide the keys behind each query: a triangle as the mask of this attention",
            evidence=("positions were moved",),
            severity=Severity.WARNING,
            confirm="witness: moving position 5 of x changes output 2 by 0.3",
        )
    ]


def test_what_is_stated_is_an_error(check: Check, subject: Subject, at: At) -> None:
    fault = CausalFault("other", 0, at(22), LEAK, "it is expected to be", stated=True)
    (found,) = check("MHA309", subject(causality=faulty(fault)))
    assert found.severity is None
    assert found.message == (
        "later positions stay visible: moving position 5 of x changes output 2 by 0.3"
        " (causal is expected)"
    )


@pytest.mark.parametrize(
    ("fault", "message", "here"),
    [
        (
            CausalFault("ahead", 0, None, LEAK, count=1),
            "every query sees the next key: moving position 5 of x changes output 2 by 0.3",
            "starts too late",
        ),
        (
            CausalFault("ahead", 0, None, LEAK, "class name GPT", count=3),
            "every query sees 3 later keys: moving position 5 of x changes output 2 by 0.3"
            " (meant to be causal by its class name GPT alone)",
            "starts too late",
        ),
        (
            CausalFault("lost", 0, None, LEAK),
            "the causal mask is joined with one that lies on the other side of the diagonal, so that"
            " nothing is hidden: moving position 5 of x changes output 2 by 0.3",
            "hides nothing",
        ),
        (
            CausalFault("mixing", 0, None, LEAK, detail="keys"),
            "later positions get around the causal mask: here they join earlier ones, in the keys:"
            " moving position 5 of x changes output 2 by 0.3",
            "later positions come in",
        ),
        (
            CausalFault("unmasked", 0, None, LEAK),
            "this attention hides no later position, and another one of the same stack does: moving"
            " position 5 of x changes output 2 by 0.3",
            "has no mask",
        ),
    ],
)
def test_what_is_said(
    check: Check, subject: Subject, fault: CausalFault, message: str, here: str
) -> None:
    (found,) = check("MHA309", subject(causality=faulty(fault)))
    assert (found.message, found.here) == (message, here)
    assert found.severity is (Severity.WARNING if fault.meant else None)


@pytest.mark.parametrize(
    ("detail", "row"),
    [
        ("NaN", "query 0 sees nothing, and its softmax gives NaN"),
        ("zeros", "query 0 sees nothing, and gets zeros"),
        ("everything", "query 0 sees nothing, so that all keys, later ones too, share its weight"),
    ],
)
def test_a_query_that_does_not_see_itself(
    check: Check, subject: Subject, detail: str, row: str
) -> None:
    fault = CausalFault("strict", 0, None, detail=detail)
    (found,) = check("MHA309", subject(causality=faulty(fault)))
    assert found.message == f"the causal mask hides every query's own position too: {row}"
    assert found.confirm == f"identity: {row}"
    assert found.why == "every position misses itself, the first all"


def test_the_masked_layer_is_marked(check: Check, subject: Subject, at: At) -> None:
    fault = CausalFault("unmasked", 0, at(24), LEAK, label=at(22))
    (found,) = check("MHA309", subject(causality=faulty(fault)))
    assert found.labels == (Label(at(22), "masked here"),)


@pytest.mark.parametrize("module", ["layers.0.cross_attn", "enc_attn", "decoder.multihead_attn"])
def test_cross_attention_without_its_source_is_another_rule(
    check: Check, subject: Subject, site: Site, module: str
) -> None:
    fault = faulty(CausalFault("unmasked", 0, None, LEAK))
    assert check("MHA309", subject(causality=fault, sites=(site(module=module),))) == []
    stack = site(module="encoder.layers.0.self_attn")
    assert len(check("MHA309", subject(causality=fault, sites=(stack,)))) == 1


def test_a_source_that_nothing_reads(check: Check, subject: Subject) -> None:
    fault = faulty(CausalFault("unmasked", 0, None, LEAK))
    unused = Known((UnusedInput("memory", (2, 5, 24), looks_like_source=True),), "unused")
    assert check("MHA309", subject(causality=fault, unused_inputs=unused)) == []


@pytest.mark.parametrize("operand", ["split_q", "split_k", "split_v", "merge"])
def test_scrambled_heads_mix_positions_too(
    check: Check, subject: Subject, site: Site, operand: str
) -> None:
    wrong: Any = Known(Layout(LayoutKind.SCRAMBLED, "q"), "split")
    fault = faulty(CausalFault("mixing", 0, None, LEAK, detail="keys"))
    assert check("MHA309", subject(causality=fault, sites=(site(**{operand: wrong}),))) == []


def test_heads_repeated_along_positions(check: Check, subject: Subject, site: Site, at: At) -> None:
    repeat = WrongRepeat.__new__(WrongRepeat)
    groups = Known(HeadGroups(4, 2, (0, 0, 1, 1), (0, 0, 1, 1), "other", at(12), repeat=repeat), "")
    fault = faulty(CausalFault("mixing", 0, None, LEAK, detail="keys"))
    assert check("MHA309", subject(causality=fault, sites=(site(head_groups=groups),))) == []


@pytest.mark.parametrize(
    ("how", "value", "told"), [("multiplied", 0.0, 0), ("multiplied", 2.0, 1), ("added", 1.0, 1)]
)
def test_hidden_scores_times_zero_count_again(
    check: Check, subject: Subject, site: Site, at: At, how: str, value: float, told: int
) -> None:
    number = MaskNumber(at(24), None, how, "bool", value, 0.9)
    one = site(masking=Known(Masking(numbers=(number,)), "replayed"))
    fault = faulty(CausalFault("other", 0, at(23), LEAK))
    assert len(check("MHA309", subject(causality=fault, sites=(one,)))) == told


def test_a_right_subject(check: Check, subject: Subject) -> None:
    assert check("MHA309", subject(causality=faulty())) == []


def test_unknown_and_not_applicable(check: Check, subject: Subject) -> None:
    with pytest.raises(UnknownFactError):
        check("MHA309", subject())
    with pytest.raises(Exception, match="no square"):
        check("MHA309", subject(causality=NotApplicable("no square")))


def test_a_leak_in_words() -> None:
    assert str(LEAK) == "moving position 5 of x changes output 2 by 0.3"
    broken = Leak("ids", 3, 0, float("inf"), "the context of query")
    assert str(broken) == "moving position 3 of ids makes the context of query 0 no number"


FAST = BranchMask("flash=True", True, 21, Span("attention.py", 18), Span("attention.py", 22), True)


def test_a_branch_without_the_triangle(check: Check, site: Site, subject: Subject, at: At) -> None:
    facts = subject(
        sites=(site(branch_masks=Known((FAST,))),), causality=NotApplicable("no square")
    )
    assert check("MHA309", facts) == [
        Violation(
            "with flash=True no mask hides later positions, and on the other branch one does: 21 more"
            " pairs of one head are visible",
            at=at(18),
            here="sees all positions with flash=True",
            why="both branches should compute the same attention, and one of them reads the future",
            help="pass the causal mask on this branch too, joined with the padding mask",
            labels=(Label(at(22), "masked here, on the other branch"),),
            confirm="witness: recorded with flash=True and without, the same pairs are visible here"
            " and hidden there",
            branch="flash=True",
        )
    ]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"apart": False}, 0),
        ({"apart": False, "flag": "pad given"}, 1),
        ({"future": False}, 0),
    ],
)
def test_which_branches_are_no_option(
    check: Check, site: Site, subject: Subject, changes: dict[str, Any], count: int
) -> None:
    branch = dataclasses.replace(FAST, **changes)
    facts = subject(sites=(site(branch_masks=Known((branch,))),), causality=faulty())
    assert len(check("MHA309", facts)) == count


def test_what_a_name_says_of_a_branch_is_not_said_again(
    check: Check, site: Site, subject: Subject, at: At
) -> None:
    fault = CausalFault("open", 0, at(18), LEAK, "class name GPT")
    facts = subject(sites=(site(branch_masks=Known((FAST,))),), causality=faulty(fault))
    (found,) = check("MHA309", facts)
    assert found.branch == "flash=True"


def test_the_end_wraps_around(check: Check, subject: Subject, at: At) -> None:
    (found,) = check("MHA309", subject(causality=faulty(CausalFault("wrapped", 0, at(12), LEAK))))
    assert found.message == (
        "the end of the sequence wraps around to its start: moving position 5 of x changes output 2"
        " by 0.3"
    )
    assert found.severity is None
