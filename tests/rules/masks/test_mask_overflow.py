"""MHA305: numbers of a mask that leave the range of their type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Severity, Violation
from mha_lint.model.mask_facts import Masking, MaskOverflow
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]
INF = float("inf")


def overflow(one: MaskOverflow) -> Known[Masking]:
    return Known(Masking(overflow=one), "replayed")


def test_two_minima(check: Check, site: Site, at: At) -> None:
    one = MaskOverflow(at(14), "sum", -6.8e38, -INF, "float32", 8, 48, True)
    assert check("MHA305", site(masking=overflow(one))) == [
        Violation(
            "two fills are added up to -6.8e+38, which float32 cannot hold; 8 of 48 queries get NaN"
            " weights, and so does the output",
            at=at(14),
            here="-inf in float32",
            why="a row in which every key is minus infinity gives NaN, and so does a mask that holds"
            " NaN",
            help="join the masks as truth values (hidden_1 | hidden_2) and fill once",
            evidence=("replayed",),
            confirm="witness: the number is -6.8e+38 in float64 and -inf in float32",
        )
    ]


def test_two_minima_beside_visible_keys(check: Check, site: Site, at: At) -> None:
    one = MaskOverflow(at(14), "sum", -6.8e38, -INF, "float32", 0, 48, False)
    assert check("MHA305", site(masking=overflow(one))) == []


def test_a_fill_that_does_not_fit(check: Check, site: Site, at: At) -> None:
    one = MaskOverflow(at(14), "fill", -1e9, -INF, "float16", 0, 48, False)
    (found,) = check("MHA305", site(masking=overflow(one)))
    assert found.severity is Severity.WARNING
    assert found.message == (
        "the fill -1e+09 does not fit into float16; it becomes -inf, and a row in which all keys are"
        " hidden would be NaN"
    )


def test_nothing_times_infinity(check: Check, site: Site, at: At) -> None:
    one = MaskOverflow(at(14), "nan", 0.0, float("nan"), "float32", 1, 48, False)
    (found,) = check("MHA305", site(masking=overflow(one)))
    assert found.severity is None
    assert found.message == (
        "the mask multiplies 0 by infinity, which is NaN; 1 of 48 queries gets NaN weights"
    )
    assert found.confirm == "identity: the recorded mask holds NaN (float32)"
