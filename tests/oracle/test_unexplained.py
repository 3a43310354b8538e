"""What no known variant reproduces: the first stage that departs is named, nothing is made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mha_lint.oracle import compare
from tests.oracle.conftest import FIRST, SECOND, Make, make_site


def noise(shape: torch.Size) -> torch.Tensor:
    g = torch.Generator().manual_seed(5)
    return torch.randn(shape, generator=g, dtype=torch.float64)


CASES = {
    "scores": Make(adjust=lambda x: x + 0.01 * noise(x.shape)),
    "weights": Make(weigh=lambda x: x.softmax(-1) + 0.01 * noise(x.shape)),
    "context": Make(context=lambda w, _, v: w @ v + 0.01 * noise((w @ v).shape)),
}


@pytest.mark.parametrize("stage", CASES)
def test_stage_is_named(stage: str) -> None:
    make = CASES[stage]
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    assert (verdict.verdict, verdict.unexplained, verdict.departs_at) == ("mismatch", True, stage)
    assert verdict.deviations == ()
    assert verdict.max_abs_error is not None and 1e-4 < verdict.max_abs_error < 1
    assert verdict.explanation is not None
    assert verdict.explanation.startswith(f"no known variant of attention reproduces the {stage}")


def test_a_known_deviation_beside_it_is_still_named_by_its_stage() -> None:
    make = Make(scale=lambda _: 1.0, weigh=lambda x: x.softmax(-1) + 0.01 * noise(x.shape))
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    assert verdict.unexplained
    assert verdict.departs_at == "scores"
    (deviation,) = verdict.deviations
    assert (deviation.key, deviation.name) == ("scale", "1")
    assert deviation.sentence.startswith(
        "scores equal those of the reference with unscaled scores (max difference "
    )


def test_a_difference_above_rounding_is_seen() -> None:
    site = make_site(FIRST)
    close = site.weights + 1e-7 * noise(site.weights.shape)
    assert compare(replace(site, weights=close)).unexplained
    rounding = site.weights * (1 + 1e-15 * noise(site.weights.shape))
    assert compare(replace(site, weights=rounding)).verdict == "match"


def test_nan_on_one_side_is_a_difference() -> None:
    site = make_site(FIRST)
    weights = site.weights.clone()
    weights[3, 2, 1] = torch.nan
    assert compare(replace(site, weights=weights)).verdict == "mismatch"


def test_everything_hidden_is_not_compared() -> None:
    hidden = Make(bias=lambda x: torch.full_like(x, -torch.inf))
    verdict = compare(make_site(FIRST, hidden))
    assert not verdict.deviations


def test_an_output_of_more_than_the_heads_is_no_part_of_a_match() -> None:
    """What is projected may hold the context and more: then the context is what is compared."""
    sites = []
    for site in (make_site(FIRST), make_site(SECOND)):
        assert site.merged is not None and site.output_weight is not None
        merged = site.merged + noise(site.merged.shape)
        made = merged @ site.output_weight.T
        output = made if site.output_bias is None else made + site.output_bias
        sites.append(replace(site, merged=merged, output=output))
    verdict = compare(*sites)
    assert (verdict.verdict, verdict.departs_at) == ("match", None)
    assert verdict.max_abs_error is not None and verdict.tolerance is not None
    assert verdict.max_abs_error <= verdict.tolerance
    assert verdict.explanation == (
        "what is projected is no rearrangement of the context, so the merge was not compared"
    )
