"""Several deviations in one site: each is named, and together they make up the output."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mha_lint.oracle import compare, confirm
from tests.oracle.conftest import (
    FIRST,
    SECOND,
    Make,
    Size,
    make_site,
    softmax_over,
    split_view,
)


def unscaled(_: Size) -> float:
    return 1.0


def reshape_only(y: Tensor) -> Tensor:
    return y


def no_projection(m: Tensor, _w: Tensor, _b: Tensor) -> Tensor:
    return m


CASES = {
    "scale and axis": (
        Make(scale=unscaled, weigh=softmax_over(1)),
        "scores",
        [("scale", "1"), ("softmax-axis", "heads")],
        "unscaled scores and softmax over the head axis",
    ),
    "scale moved behind the softmax": (
        Make(scale=unscaled, after=lambda s: s.head_dim**-0.5),
        "scores",
        [("scale", "1"), ("scale-after", "1/sqrt(head_dim)")],
        "unscaled scores and weights multiplied by 1/sqrt(head_dim)",
    ),
    "split and merge": (
        Make(split_v=split_view, merge=reshape_only),
        "operands",
        [("split:v", "a view without transpose"), ("merge", "reshape without transpose")],
        "values split by a view without transpose and heads merged by a reshape without transpose",
    ),
    "axis and factor": (
        Make(weigh=softmax_over(-2), after=lambda s: s.head_dim**-0.5),
        "weights",
        [("softmax-axis", "queries"), ("scale-after", "1/sqrt(head_dim)")],
        "softmax over the query axis and weights multiplied by 1/sqrt(head_dim)",
    ),
    "no softmax, divided by the length": (
        Make(weigh=lambda x: x / x.shape[-1]),
        "weights",
        [("normaliser", "none"), ("scale-after", "1/T_k")],
        "no softmax and weights multiplied by 1/T_k",
    ),
    "two softmaxes over two axes": (
        Make(weigh=lambda x: x.softmax(-1).softmax(-2)),
        "weights",
        [("repeated-softmax", "keys, then queries")],
        "softmax over the key axis, then over the query axis",
    ),
    "axis, merge and projection": (
        Make(weigh=softmax_over(0), merge=reshape_only, project=no_projection),
        "weights",
        [
            ("softmax-axis", "batch"),
            ("merge", "reshape without transpose"),
            ("output-projection", "absent"),
        ],
        "softmax over the batch axis, heads merged by a reshape without transpose and no output"
        " projection",
    ),
    "scale, roles": (
        Make(scale=lambda s: s.d_model**-0.5, context=lambda w, k, _: w @ k),
        "scores",
        [("scale", "1/sqrt(d_model)"), ("roles", "weights times keys")],
        "scale 1/sqrt(d_model) and weights times keys",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_is_named_and_together_they_reproduce_the_output(name: str) -> None:
    make, departs_at, found, phrases = CASES[name]
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    assert verdict.departs_at == departs_at
    assert [(d.key, d.name) for d in verdict.deviations] == found
    for key, _ in found:
        sentence = confirm(verdict, key)
        assert sentence is not None
        assert sentence.startswith(f"output equals the reference with {phrases} (max difference ")
    assert verdict.explanation == verdict.deviations[0].sentence
    assert verdict.max_abs_error is not None and verdict.max_abs_error > 1e-3


def test_inverse_reshape_at_the_end_of_a_wrong_split_is_no_second_fault() -> None:
    make = Make(split_q=split_view, split_k=split_view, split_v=split_view, merge=reshape_only)
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    assert [d.key for d in verdict.deviations] == ["split:q", "split:k", "split:v"]


def test_a_key_that_was_not_found_is_not_confirmed() -> None:
    make = Make(weigh=softmax_over(1))
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    assert confirm(verdict, "softmax-axis") is not None
    assert confirm(verdict, "scale") is None
    assert confirm(verdict, "scale-after") is None
    assert confirm(verdict, "split") is None


def test_split_stands_for_any_operand() -> None:
    make = Make(split_k=split_view)
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    assert confirm(verdict, "split") == confirm(verdict, "split:k") is not None
    assert confirm(verdict, "split:q") is None


def test_heat_shows_where_the_weights_differ() -> None:
    right, wrong = compare(make_site(FIRST)), compare(make_site(FIRST, Make(weigh=softmax_over(1))))
    assert right.heat is None
    assert wrong.heat is not None
    assert wrong.heat.shape == (5, 7, 7)
    site = make_site(FIRST, Make(weigh=softmax_over(1)))
    gap = (site.weights - torch.softmax(site.logits, -1)).abs().view(3, 5, 7, 7).amax(0)
    assert torch.allclose(wrong.heat, gap, rtol=0, atol=1e-12)
