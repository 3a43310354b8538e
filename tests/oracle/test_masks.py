"""Masks: what the contract asks for, against what is hidden; and masks after the softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mha_lint.oracle import SiteData, compare, confirm
from tests.oracle.conftest import CROSS_FIRST, FIRST, SECOND, Make, Size, make_site

Hide = Callable[[Tensor], Tensor]


def triangle(shift: int = 1, *, lower: bool = False) -> Hide:
    def hide(x: Tensor) -> Tensor:
        ones = torch.ones(x.shape[-2:], dtype=torch.bool)
        return x.masked_fill(ones.tril(shift) if lower else ones.triu(shift), -math.inf)

    return hide


def site(size: Size, hide: Hide | None, due: bool | None) -> SiteData:
    return replace(make_site(size, Make(bias=hide)), causal_due=due)


WRONG = {
    "off": (None, "no causal mask"),
    "inverted": (triangle(-1, lower=True), "an inverted causal mask"),
    "hides itself": (triangle(0), "a causal mask that hides the query's own position"),
    "sees the next": (triangle(2), "a causal mask that leaves the next position visible"),
    "complement": (triangle(0, lower=True), "the complement of a causal mask"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_triangle_where_a_causal_one_is_due(name: str) -> None:
    hide, phrase = WRONG[name]
    verdict = compare(site(FIRST, hide, True), site(SECOND, hide, True))
    assert [(d.stage, d.key, d.name) for d in verdict.deviations] == [
        ("scores", "mask-causal", name)
    ]
    sentence = confirm(verdict, "mask-causal")
    assert sentence is not None
    assert sentence.startswith(f"output equals the reference with {phrase} (max difference ")
    assert verdict.max_abs_error is not None and verdict.max_abs_error > 1e-3


def test_causal_mask_where_none_is_due() -> None:
    verdict = compare(site(FIRST, triangle(), False), site(SECOND, triangle(), False))
    assert [(d.key, d.name) for d in verdict.deviations] == [("mask-causal", "on")]
    sentence = confirm(verdict, "mask-causal")
    assert sentence is not None and "the reference with a causal mask (max" in sentence


@pytest.mark.parametrize(
    ("hide", "due"),
    [(triangle(), True), (None, False), (triangle(), None), (None, None)],
    ids=["causal", "bidirectional", "causal, unsaid", "bidirectional, unsaid"],
)
def test_right_triangle(hide: Hide | None, due: bool | None) -> None:
    verdict = compare(site(FIRST, hide, due), site(SECOND, hide, due))
    assert (verdict.verdict, verdict.deviations) == ("match", ())


def test_padding_beside_the_triangle_is_left_out() -> None:
    def hide(x: Tensor) -> Tensor:
        y = triangle()(x).clone()
        y[:2, ..., -2:] = -math.inf
        return y

    assert compare(site(FIRST, hide, True)).verdict == "match"

    def inverted(x: Tensor) -> Tensor:
        y = triangle(-1, lower=True)(x).clone()
        y[:2, ..., :2] = -math.inf
        return y

    verdict = compare(site(FIRST, inverted, True))
    assert [d.name for d in verdict.deviations] == ["inverted"]


def test_window_of_a_causal_site_is_right() -> None:
    def hide(x: Tensor) -> Tensor:
        ones = torch.ones(x.shape[-2:], dtype=torch.bool)
        return x.masked_fill(ones.triu(1) | ones.tril(-3), -math.inf)

    assert compare(site(FIRST, hide, True)).verdict == "match"


def test_weak_fill_is_no_mask() -> None:
    def weak(x: Tensor) -> Tensor:
        return x.masked_fill(torch.ones(x.shape[-2:], dtype=torch.bool).triu(1), -2.0)

    verdict = compare(site(FIRST, weak, True))
    assert [d.name for d in verdict.deviations] == ["off"]


@pytest.mark.parametrize("shift", [1, 5])
def test_both_alignments_are_causal_where_lengths_differ(shift: int) -> None:
    assert compare(site(CROSS_FIRST, triangle(shift), True)).verdict == "match"


def test_unasked_triangle_is_observed_and_can_confirm() -> None:
    verdict = compare(site(FIRST, triangle(2), None))
    assert verdict.verdict == "match"
    sentence = "the mask equals a causal mask that leaves the next position visible"
    assert confirm(verdict, "mask-causal") == sentence


def test_a_mask_of_no_known_shape_is_noted() -> None:
    def hide(x: Tensor) -> Tensor:
        hidden = torch.zeros(x.shape[-2:], dtype=torch.bool)
        hidden[1, 3] = hidden[4, 2] = True
        return x.masked_fill(hidden, -math.inf)

    verdict = compare(site(FIRST, hide, True))
    assert verdict.deviations == ()
    assert "the mask is no triangle that is known" in verdict.notes[0]


def test_mask_after_the_softmax() -> None:
    def weigh(x: Tensor) -> Tensor:
        return x.softmax(-1).tril()

    make = Make(weigh=weigh)
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    assert [(d.stage, d.key, d.name) for d in verdict.deviations] == [
        ("weights", "mask-after-softmax", "not renormalised")
    ]
    sentence = confirm(verdict, "mask-after-softmax")
    assert sentence is not None and "weights masked after the softmax" in sentence


def test_dropout_that_is_on() -> None:
    def weigh(x: Tensor) -> Tensor:
        g = torch.Generator().manual_seed(3)
        keep = torch.rand(x.shape, generator=g, dtype=x.dtype) > 0.2
        return x.softmax(-1) * keep / 0.8

    make = Make(weigh=weigh)
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    assert [(d.key, d.name) for d in verdict.deviations] == [("dropout", "rate 0.2")]
