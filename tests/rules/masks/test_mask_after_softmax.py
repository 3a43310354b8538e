"""MHA301: weights masked behind the normaliser."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from mha_lint.model.facts import Known, NotApplicable, NotApplicableError, SiteFacts
from mha_lint.model.finding import Label, Violation
from mha_lint.model.mask_facts import LateMask, Masking
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def test_zeroed_weights(check: Check, site: Site, at: At) -> None:
    late = LateMask(at(25), None, 0.0, 20, 90, (0.41, 0.82), 1.0)
    assert check("MHA301", site(masking=Known(Masking(late=(late,)), "replayed"))) == [
        Violation(
            "the mask sets weights to 0 after the softmax, and what is left of a query's weights sums"
            " to 0.41 ... 0.82, not to 1",
            at=at(25),
            here="takes away 20 of 90 weights",
            why="the softmax has already given the hidden keys a part of each query's weight, and so"
            " they still act on the result",
            help='mask the scores instead: scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)',
            evidence=("replayed",),
            labels=(Label(at(23), "normalises over hidden keys too"),),
            confirm="witness: with the mask the weights of the queries concerned sum to 0.41 ... 0.82,"
            " without it to 1",
        )
    ]


def test_weights_of_minus_infinity(check: Check, site: Site, at: At) -> None:
    inf = float("inf")
    late = LateMask(at(23), None, -inf, 20, 90, (-inf, -inf), 1.0)
    (found,) = check("MHA301", site(masking=Known(Masking(late=(late,)))))
    assert found.message == (
        "the mask sets weights to -inf after the softmax, and no weighted mean is left"
    )
    assert found.labels == ()


def test_equal_sums_are_told_once(check: Check, site: Site) -> None:
    late = LateMask(None, None, 0.0, 20, 90, (0.5, 0.5), 1.0)
    (found,) = check("MHA301", site(masking=Known(Masking(late=(late,)))))
    assert "sums to 0.5, not to 1" in found.message
    assert found.at is not None and found.at.line == 23


def test_no_mask_at_all(check: Check, site: Site) -> None:
    with pytest.raises(NotApplicableError):
        check("MHA301", site(masking=NotApplicable("no mask")))
