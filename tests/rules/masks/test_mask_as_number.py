"""MHA303: truth values added, multiplied, or filled with a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Violation
from mha_lint.model.mask_facts import Masking, MaskNumber
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_added(check: Check, site: Site, at: At) -> None:
    number = MaskNumber(at(22), None, "added", "bool", 1.0, 0.97)
    assert check("MHA303", site(masking=Known(Masking(numbers=(number,)), "replayed"))) == [
        Violation(
            "a mask of 0 and 1 (bool) is added to the scores, and hides nothing",
            at=at(22),
            here="adds 1 to a score",
            why="a key on the hidden side of the mask keeps a weight of the same order as the others",
            help='fill the scores where the mask hides: scores.masked_fill(hidden, float("-inf"))',
            evidence=("replayed",),
            confirm="identity: what the mask tells apart gets weights on both sides, on the smaller one up"
            " to 0.97 times those on the other",
        )
    ]


@pytest.mark.parametrize(
    ("number", "message", "here"),
    [
        (
            MaskNumber(None, None, "multiplied", "float32", 0.0, 0.5),
            "the scores are multiplied by a mask of 0 and 1 (float32): a hidden score is 0, and not"
            " minus infinity",
            "a score times 0",
        ),
        (
            MaskNumber(None, None, "multiplied", "float32", -1e9, 0.5),
            "the scores are multiplied by a mask that holds -1e+09",
            "a score times -1e+09",
        ),
        (
            MaskNumber(None, None, "collapsed", "bool", -1e15, 1.0),
            "a bool tensor is filled with -1e+15, which it can only hold as True",
            "True everywhere",
        ),
    ],
)
def test_each_way_has_its_words(
    number: MaskNumber, message: str, here: str, check: Check, site: Site
) -> None:
    (found,) = check("MHA303", site(masking=Known(Masking(numbers=(number,)))))
    assert (found.message, found.here) == (message, here)
    assert found.at is not None and found.at.line == 22
    assert found.why and found.help and found.confirm


def test_made_by_another_class(check: Check, site: Site, at: At) -> None:
    number = MaskNumber(at(30), at(30), "added", "float32", 1.0, 0.97)
    (found,) = check("MHA303", site(masking=Known(Masking(numbers=(number,)), "")))
    assert (found.at, found.here) == (
        at(30), "made as numbers, which the attention adds to its scores",
    )  # fmt: skip
