"""MHA313: bounded maps between a mask and the softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Label, Violation
from mha_lint.model.mask_facts import Masking, Squashed
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_a_cap(check: Check, site: Site, at: At) -> None:
    squashed = Squashed(at(23), at(22), -float("inf"), -20.0, 2e-9)
    assert check("MHA313", site(masking=Known(Masking(squashed=(squashed,)), "replayed"))) == [
        Violation(
            "scores that the mask set to -inf are squashed to -20 before the softmax: hidden keys come"
            " back",
            at=at(23),
            here="-inf becomes -20",
            why="a hidden score is then no lower than a visible one may be, and at the recorded scores"
            " a hidden key keeps 2e-09 of the largest visible weight",
            help="cap the scores first, and mask them afterwards",
            evidence=("replayed",),
            labels=(Label(at(22), "masked here"),),
            confirm="witness: with fills twice as low the softmax still gets -20",
        )
    ]


def test_one_line_for_both(check: Check, site: Site, at: At) -> None:
    squashed = Squashed(at(23), at(23), -1e9, -20.0, 2e-9)
    (found,) = check("MHA313", site(masking=Known(Masking(squashed=(squashed,)))))
    assert found.labels == ()
