"""MHA308: a mask hides at another place than it speaks of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Severity, Violation
from mha_lint.model.mask_fit_facts import MaskFit, Misplaced
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def fit(one: Misplaced) -> Known[MaskFit]:
    return Known(MaskFit(misplaced=(one,)), "elements were turned over")


def test_heads_folded_the_other_way(check: Check, site: Site, at: At) -> None:
    one = Misplaced(
        "samples", "mask", "the mask of sample 0 acts on sample 1", True, at(17), "it changes 1"
    )
    assert check("MHA308", site(mask_fit=fit(one))) == [
        Violation(
            "mask lands on other samples: the mask of sample 0 acts on sample 1",
            at=at(17),
            here="repeats the mask in the other order",
            why="some keys are hidden that should be seen, and others seen that should be hidden",
            help="mask.repeat_interleave(num_heads, dim=0), which keeps the heads of a sample"
            " together",
            evidence=("elements were turned over",),
            confirm="witness: it changes 1",
        )
    ]


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("queries", "lies on the query axis"),
        ("heads", "lands on the heads"),
        ("positions", "is shifted against the keys"),
        ("halves", "hides nothing"),
        ("either", "hides too little"),
        ("window", "lies on the wrong side of the query"),
        ("lopsided", "is shorter on one side"),
        ("beyond", "ends one position too late"),
        ("within", "ends one position too early"),
    ],
)
def test_each_kind_has_its_words(kind: str, what: str, check: Check, site: Site, at: At) -> None:
    (found,) = check("MHA308", site(mask_fit=fit(Misplaced(kind, "m", "so", True, None))))
    assert found.message == f"m {what}: so"
    assert (found.at, found.severity, found.confirm) == (at(22), None, None)
    assert found.help and found.here


def test_the_mask_of_another_sequence(check: Check, site: Site, at: At) -> None:
    says = "the keys come from memory, and tgt_mask speaks of tgt"
    one = Misplaced("source", "tgt_mask", says, False, at(31), "by name", meant="src_mask")
    (found,) = check("MHA308", site(mask_fit=fit(one)))
    assert found.message == f"tgt_mask belongs to another sequence (judged from names): {says}"
    assert (found.help, found.severity) == ("pass src_mask", Severity.WARNING)
    assert found.confirm is None


def test_a_window_that_is_short(check: Check, site: Site) -> None:
    says = "a query sees 3 keys, itself among them, and window is 4"
    (found,) = check(
        "MHA308", site(mask_fit=fit(Misplaced("short", "the window", says, False, None)))
    )
    assert found.message == (
        f"the window does not hold what its size says (judged from names): {says}"
    )
