"""MHA311: a causal triangle over the keys of another sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Severity, Violation
from mha_lint.model.mask_fit_facts import MaskFit, Triangle
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_over_the_keys_of_another_sequence(check: Check, site: Site, at: At) -> None:
    one = Triangle("they differ", True, at(24), 5, 7, 20, "query 0 does not see key 1")
    fit = Known(MaskFit(causal_cross=one), "scores of 0")
    assert check("MHA311", site(mask_fit=fit)) == [
        Violation(
            "cross-attention is causal: a triangle hides 20 of the 35 pairs of 5 queries and 7"
            " keys, but they differ",
            at=at(24),
            here="hides later keys of the other sequence",
            why="the first queries see almost nothing of the source",
            help="no causal mask in cross-attention: only the source's padding is hidden",
            evidence=("scores of 0",),
            confirm="witness: query 0 does not see key 1",
        )
    ]


def test_by_the_name_of_the_source_it_is_a_warning(check: Check, site: Site, at: At) -> None:
    one = Triangle("by its name", False, None, 5, 5, 10, "so")
    (found,) = check("MHA311", site(mask_fit=Known(MaskFit(causal_cross=one), "")))
    assert (found.severity, found.at) == (Severity.WARNING, at(22))


def test_nothing_that_does_not_fit(check: Check, site: Site) -> None:
    assert check("MHA311", site(mask_fit=Known(MaskFit(), ""))) == []
