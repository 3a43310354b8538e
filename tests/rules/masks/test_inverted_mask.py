"""MHA302: a mask is read the wrong way round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from mha_lint.model.facts import Known, SiteFacts
from mha_lint.model.finding import Label, Severity, Violation
from mha_lint.model.mask_fit_facts import Inversion, MaskFit
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]

SIGN = "every one of 6 positions sees later positions only, and none sees an earlier one"


def fit(one: Inversion) -> Known[MaskFit]:
    return Known(MaskFit(inverted=(one,)), "elements were turned over")


def test_a_triangle_that_is_read_the_other_way_round(check: Check, site: Site, at: At) -> None:
    one = Inversion(
        "triangle", "the triangle", "", (SIGN,), True, False, at(30), at(5), "changing 5 moves 0"
    )
    assert check("MHA302", site(mask_fit=fit(one))) == [
        Violation(
            f"the causal mask shows the wrong side: {SIGN}",
            at=at(30),
            here="takes it the other way round",
            why="a position must not see what comes after it, and needs what came before it",
            help="tril for what may be seen, triu(diagonal=1) for what is hidden; with"
            " F.scaled_dot_product_attention True may be seen, with nn.MultiheadAttention True is"
            " hidden",
            evidence=("elements were turned over",),
            labels=(Label(at(5), "built here"),),
            confirm="witness: changing 5 moves 0",
        )
    ]


def test_a_triangle_that_is_built_on_the_wrong_side(check: Check, site: Site, at: At) -> None:
    one = Inversion("triangle", "the triangle", "", (SIGN,), True, True, None)
    (found,) = check("MHA302", site(mask_fit=fit(one)))
    assert (found.at, found.here) == (at(22), "builds the triangle on the wrong side")
    assert (found.labels, found.confirm) == ((), "identity: built here")


def test_a_mask_argument(check: Check, site: Site, at: At) -> None:
    one = Inversion(
        "polarity", "valid", "hide", ("the call hides sample 0",), True, False, at(22), None, "40 pairs"
    )  # fmt: skip
    (found,) = check("MHA302", site(mask_fit=fit(one)))
    assert found.message == (
        "attention hides the keys where valid is true, but true is meant for what may be seen: the"
        " call hides sample 0"
    )
    assert (found.at, found.here) == (at(22), "takes true the other way round")
    assert (found.help, found.severity) == ("invert the mask: ~valid", None)
    assert found.evidence == ("the call hides sample 0", "elements were turned over")
    assert found.confirm == "witness: 40 pairs"


def test_a_comment_alone_is_a_warning(check: Check, site: Site, at: At) -> None:
    one = Inversion(
        "polarity", "ids == 0", "keep", ("a comment says so",), False, True, at(9), at(22)
    )
    (found,) = check("MHA302", site(mask_fit=fit(one)))
    assert found.message == (
        "attention shows the keys where ids == 0 is true, but true is meant for what is hidden"
        " (judged from names and comments): a comment says so"
    )
    assert (found.severity, found.help) == (Severity.WARNING, "invert the mask")
    assert found.here == "makes the mask in the other convention"
    assert (found.labels, found.confirm) == ((Label(at(22), "read here"),), None)


def test_several_masks(check: Check, site: Site, at: At) -> None:
    one = Inversion("polarity", "a", "hide", ("x",), True, False, at(22))
    two = replace(one, mask="b")
    both = Known(MaskFit(inverted=(one, two)), "")
    assert len(check("MHA302", site(mask_fit=both))) == 2


def test_a_window_that_is_read_the_other_way_round(check: Check, site: Site, at: At) -> None:
    says = "every query sees all positions but itself and the 2 before it"
    one = Inversion("window", "the window", "", (says,), True, False, at(30), None, "6 misses 6")
    (found,) = check("MHA302", site(mask_fit=fit(one)))
    assert found.message == f"the window is read the other way round: {says}"
    assert (found.at, found.severity, found.confirm) == (at(30), None, "witness: 6 misses 6")


def test_a_window_by_its_words_alone(check: Check, site: Site) -> None:
    one = Inversion("window", "the window", "", ("so",), False, False, None)
    (found,) = check("MHA302", site(mask_fit=fit(one)))
    assert found.message == (
        "the window is read the other way round (judged from names and comments): so"
    )
    assert found.severity is Severity.WARNING
