"""What large scores do to the normaliser, in its own type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

SCORES = "scores = q @ k.transpose(-2, -1)"
LOGITS = "scores = scores / math.sqrt(self.d_k)"
WEIGHTS = "weights = scores.softmax(dim=-1)"
POWERS = "powers = {}\n        weights = powers / powers.sum(-1, keepdim=True)"
HALF = {"build": "MHA(24, 4).half()", "call": "torch.randn(2, 5, 24).half()"}


def powers(of: str) -> tuple[str, str]:
    return WEIGHTS, POWERS.format(of)


@pytest.mark.parametrize(
    "of",
    [
        "scores.exp()",
        "torch.exp2(scores * 1.4426950408889634)",
        "math.e ** scores",
        "(scores - scores.mean(-1, keepdim=True)).exp()",
        "scores.clamp(max=100).exp()",
        "scores.exp() * torch.ones(T, T).tril()",
        "scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf).exp()",
    ],
)
def test_an_exponential_without_its_maximum(of: str, measured: Measure, known: Known) -> None:
    case = measured(powers(of))
    found = known(case.site.stability).exponential
    assert found.dtype == "float32"
    assert 88 < found.reached < 300
    assert 0 < found.lost < found.total
    assert found.span.line == case.line("powers = ")


@pytest.mark.parametrize("small", [0.3, 0.01])
def test_scores_that_are_small_beside_what_is_added(
    small: float, measured: Measure, known: Known
) -> None:
    added = (SCORES, f"{SCORES} * {small} + 3 * torch.eye(T)")
    found = known(measured(added, powers("scores.exp()")).site.stability).exponential
    assert 88 < found.reached < 800
    for stays in ("(3 * torch.tanh(scores)).exp()", "1 / (1 + torch.exp(-scores))"):
        assert known(measured(added, powers(stays)).site.stability).exponential is None


def test_the_limit_is_that_of_the_type(measured: Measure, known: Known) -> None:
    case = measured(powers("scores.exp()"), **HALF)
    found = known(case.site.stability).exponential
    assert (found.dtype, found.limit) == ("float16", 65504.0)
    assert 11 < found.reached < 40


@pytest.mark.parametrize(
    "edit",
    [
        powers("(scores - scores.amax(-1, keepdim=True)).exp()"),
        powers("(scores - scores.amax(-1, keepdim=True).detach()).exp()"),
        powers("scores.clamp(-50, 50).exp()"),
        powers("(20 * torch.tanh(scores / 20)).exp()"),
        powers("torch.sigmoid(scores)"),
        powers("1 / (1 + torch.exp(-scores))"),
        (WEIGHTS, "weights = (scores - torch.logsumexp(scores, -1, keepdim=True)).exp()"),
        (WEIGHTS, "weights = torch.log_softmax(scores, -1).exp()"),
        (LOGITS, LOGITS),
    ],
)
def test_what_stays_finite(edit: tuple[str, str], measured: Measure, known: Known) -> None:
    assert known(measured(edit).site.stability).exponential is None


def test_cosines_are_bounded_whatever_they_are_made_from(measured: Measure, known: Known) -> None:
    cosines = "scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)"
    case = measured((SCORES, cosines), powers("(10 * scores).exp()"))
    assert known(case.site.stability).exponential is None


# --- the product in half precision -----------------------------------------------------------------


def test_a_product_that_overflows_before_the_scale(measured: Measure, known: Known) -> None:
    large = {"build": "MHA(128, 2).half()", "call": "torch.randn(1, 5, 128).half() * 150"}
    case = measured(**large)
    found = known(case.site.stability)
    assert (found.product.dtype, found.product.limit) == ("float16", 65504.0)
    assert found.product.reached > 65504 > found.product.reached * found.gain
    assert found.gain == pytest.approx(1 / 8, rel=1e-3)
    assert case.marked(found.product.span) == "q @ k.transpose(-2, -1)"
    first = measured((SCORES, SCORES.replace("q @", "(q / math.sqrt(self.d_k)) @")),
                     (LOGITS, "pass"), **large)  # fmt: skip
    assert known(first.site.stability).product is None
    usual = measured(**{**large, "call": "torch.randn(1, 5, 128).half()"})
    assert known(usual.site.stability).product is None


# --- a constant beside the sum ---------------------------------------------------------------------

SHIFTED = "powers = (scores - scores.amax(-1, keepdim=True)).exp()"


@pytest.mark.parametrize("constant", [1, 0.5, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_a_constant_that_was_not_shifted(
    constant: float, masked: bool, measured: Measure, known: Known
) -> None:
    fill = "scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -1e9)\n        "
    division = f"weights = powers / ({constant} + powers.sum(-1, keepdim=True))"
    case = measured((WEIGHTS, f"{fill if masked else ''}{SHIFTED}\n        {division}"))
    found = known(case.site.stability).added
    assert found.constant == pytest.approx(constant)
    assert 0 < found.sums[0] < found.sums[1] < 1
    assert found.span.line == case.line("weights = powers")


@pytest.mark.parametrize(
    "weights",
    [
        "m = scores.amax(-1, keepdim=True).clamp(min=0)\n        e = (scores - m).exp()\n"
        "        weights = e / ((-m).exp() + e.sum(-1, keepdim=True))",
        "weights = F.pad(scores, (0, 1)).softmax(-1)[..., :-1]",
        "weights = 0.5 * scores.softmax(-1)",
        "weights = scores.softmax(-1) * torch.ones(T, T).tril()",
        f"{SHIFTED}\n        weights = powers / (1e-6 + powers.sum(-1, keepdim=True))",
        "weights = scores.exp()\n        weights = weights / (1 + weights.sum(-1, keepdim=True))",
    ],
)
def test_sums_below_one_for_other_reasons(weights: str, measured: Measure, known: Known) -> None:
    assert known(measured((WEIGHTS, weights)).site.stability).added is None


def test_an_epsilon_in_the_denominator_is_no_mystery(measured: Measure, known: Known) -> None:
    case = measured(
        (WEIGHTS, f"{SHIFTED}\n        weights = powers / (1e-6 + powers.sum(-1, True))")
    )
    assert 1e-8 < known(case.site.stability).short < 1e-5
    assert known(measured().site.stability).short < 1e-12


def test_without_a_normaliser(measured: Measure, why: Callable[[Any], tuple[str, str]]) -> None:
    case = measured((WEIGHTS, "weights = scores"))
    assert why(case.site.stability) == ("NotApplicable", "nothing normalises the scores")
