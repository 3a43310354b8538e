"""MHA202: another quantity than 1/sqrt(head_dim)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from mha_lint.model.facts import (
    BranchScale,
    Kind,
    Known,
    Normaliser,
    Scale,
    ScaleFactor,
    SiteFacts,
    Unknown,
)
from mha_lint.model.finding import Label, Violation
from mha_lint.model.source import Span

At: TypeAlias = Callable[[int], Span]
Check: TypeAlias = Callable[[str, SiteFacts], list[Violation]]
Site: TypeAlias = Callable[..., SiteFacts]


def scaled(value: float, named: str | None = None, **changed: Any) -> Known[Scale]:
    return Known(replace(Scale(value, 6**-0.5, named, init_ratio=1.02), **changed), "gain")


def branch(here: float, other: float, flag: str = "fused") -> Known[tuple[BranchScale, ...]]:
    places = Span("attention.py", 30), Span("attention.py", 32)
    return Known((BranchScale(flag, here, other, *places),), "fused was flipped")


def test_d_model(check: Check, site: Site, at: At) -> None:
    assert check("MHA202", site(scale=scaled(24**-0.5, "1/sqrt(d_model)"))) == [
        Violation(
            "the scores are scaled by 1/sqrt(d_model) = 0.204,"
            " but head_dim is 6: 1/sqrt(head_dim) = 0.408",
            at=at(21),
            here="scales by 0.204",
            why="too small a scale makes attention uniform, too large a one makes it one-hot",
            help="divide by math.sqrt(head_dim) = 2.45 instead",
            evidence=("gain",),
            confirm="scale",
        )
    ]


def test_twice(check: Check, site: Site, at: At) -> None:
    right = 6**-0.5
    factors = (ScaleFactor(right, "q", at(13)), ScaleFactor(right, "scores", at(26)))
    (found,) = check("MHA202", site(scale=scaled(1 / 6, "1/head_dim", factors=factors)))
    assert found.message == (
        "the scores are scaled twice, by 1/sqrt(head_dim) on q and on the scores:"
        " 0.167 in all, but head_dim is 6: 1/sqrt(head_dim) = 0.408"
    )
    assert found.at == at(26)
    assert found.here == "times 0.408 on the scores"
    assert found.labels == (Label(at(13), "times 0.408 on q"),)
    assert found.help == (
        "keep one of the two; scaled_dot_product_attention scales by itself (scale=)"
    )


def test_several_factors_are_shown(check: Check, site: Site, at: At) -> None:
    factors = (ScaleFactor(0.5, "k", at(14)), ScaleFactor(0.3, "scores", at(21)))
    (found,) = check("MHA202", site(scale=scaled(0.15, factors=factors)))
    assert found.message == (
        "the scores are scaled by 0.15, but head_dim is 6: 1/sqrt(head_dim) = 0.408"
    )
    assert (found.at, found.here) == (at(21), "times 0.3 on the scores")
    assert found.labels == (Label(at(14), "times 0.5 on k"),)


def test_head_dim_itself_by_one_factor_is_not_twice(check: Check, site: Site, at: At) -> None:
    factors = (ScaleFactor(1 / 6, "scores", at(21)),)
    (found,) = check("MHA202", site(scale=scaled(1 / 6, "1/head_dim", factors=factors)))
    assert found.message == (
        "the scores are scaled by 1/head_dim = 0.167, but head_dim is 6: 1/sqrt(head_dim) = 0.408"
    )
    assert found.labels == ()


@pytest.mark.parametrize(
    ("changed", "reading"),
    [
        ({"follows_size": False}, "the hard-coded constant 0.125"),
        ({"follows_size": True}, "0.125"),
        ({"per_head": (0.125, 0.25)}, "0.125 ... 0.25, depending on the head"),
        ({"per_head": (0.125, 0.125)}, "0.125"),
    ],
)
def test_a_constant(check: Check, site: Site, changed: dict[str, Any], reading: str) -> None:
    (found,) = check("MHA202", site(scale=scaled(0.125, **changed)))
    assert found.message == (
        f"the scores are scaled by {reading}, but head_dim is 6: 1/sqrt(head_dim) = 0.408"
    )


def test_coincidences_are_told(check: Check, site: Site) -> None:
    scale = scaled(0.5, "1/sqrt(num_heads)", coincident=("1/sqrt(T_k)", "1/2"))
    (found,) = check("MHA202", site(scale=scale))
    assert found.evidence == (
        "gain",
        "at the sizes tried this cannot be told from 1/sqrt(T_k) or 1/2",
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"right": True},
        {"normalised": True},
        {"learned": True},
        {"stated": "qk_scale"},
        {"folded": 0.41},
        {"value": 1.0},
    ],
)
def test_silent(check: Check, site: Site, changed: dict[str, Any]) -> None:
    assert check("MHA202", site(scale=scaled(**{"value": 0.2, **changed}))) == []


@pytest.mark.parametrize("kind", [Kind.POOLING, Kind.LINEAR, Kind.CHANNEL])
def test_other_kinds_are_not_judged(check: Check, site: Site, kind: Kind) -> None:
    assert check("MHA202", site(scale=Unknown("no scores"), kind=kind)) == []


def test_branches_disagree(check: Check, site: Site, at: At) -> None:
    assert check("MHA202", site(branch_scales=branch(0.408, 0.1))) == [
        Violation(
            "the scale depends on fused: 0.408 in this call, 0.1 when it is flipped",
            at=at(30),
            here="scales by 0.408",
            why="both branches should compute the same attention",
            help="pass the same scale to both,"
            " as scaled_dot_product_attention(..., scale=self.scale)",
            evidence=("fused was flipped",),
            labels=(Label(at(32), "scales by 0.1"),),
            confirm="witness: flipping fused changes the scale from 0.408 to 0.1",
            branch="fused",
        )
    ]


def test_the_branch_that_is_not_as_stated_is_marked(check: Check, site: Site, at: At) -> None:
    facts = site(scale=scaled(0.1, stated="qk_scale"), branch_scales=branch(0.1, 0.408))
    (found,) = check("MHA202", facts)
    assert (found.at, found.here) == (at(32), "scales by 0.408")
    assert found.labels == (Label(at(30), "scales by 0.1"),)


def test_a_flag_that_is_there_to_change_the_scale(check: Check, site: Site) -> None:
    meant = branch(0.408, 0.204, "scale_attn_by_inverse_layer_idx=False")
    assert check("MHA202", site(branch_scales=meant)) == []


def test_branches_that_agree(check: Check, site: Site) -> None:
    assert check("MHA202", site(branch_scales=branch(0.408, 0.4080001))) == []


def test_one_over_the_number_of_keys_without_a_softmax(check: Check, site: Site) -> None:
    scale = scaled(1 / 7, "1/T_k")
    mean = Known(Normaliser("none", averaged=True))
    assert check("MHA202", site(scale=scale, normaliser=mean)) == []
    assert len(check("MHA202", site(scale=scale))) == 1
