"""The scale: its value, its name at two sizes, its places, and what makes none due."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.facts import Scale
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

LINE = "        scores = scores / math.sqrt(self.d_k)\n"
DUE = 6**-0.5


def scaled(by: str) -> tuple[str, str]:
    return LINE, f"        scores = {by}\n"


def places(case: Case, scale: Scale) -> list[tuple[float, str, str]]:
    return [(round(f.factor, 6), f.on, case.marked(f.span)) for f in scale.factors]


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_right_scale_of_every_spelling(name: str, measured: Measure, known: Known) -> None:
    spelling = SPELLINGS[name]
    case = measured(text=spelling.text, build=spelling.build, call=spelling.call)
    scale = known(case.site.scale)
    assert scale.value == pytest.approx(DUE, rel=1e-7)
    assert scale.expected == pytest.approx(DUE, rel=1e-12)
    assert (scale.named, scale.coincident, scale.right) == ("1/sqrt(head_dim)", (), True)
    assert (scale.follows_size, scale.terms, scale.per_head) == (True, 1, ())
    assert (scale.learned, scale.normalised, scale.stated) == (False, False, None)
    assert scale.after == pytest.approx(1, rel=1e-9)
    assert len(scale.factors) == 1
    assert scale.factors[0].factor == pytest.approx(DUE, rel=1e-7)


@pytest.mark.parametrize(
    ("by", "value", "named"),
    [
        ("scores / math.sqrt(C)", 24**-0.5, "1/sqrt(d_model)"),
        ("scores / self.d_k", 1 / 6, "1/head_dim"),
        ("scores * math.sqrt(self.d_k)", 6**0.5, "sqrt(head_dim)"),
        ("scores * self.d_k", 6, "head_dim"),
        ("scores / C", 1 / 24, "1/d_model"),
        ("scores / math.sqrt(self.h)", 4**-0.5, "1/sqrt(num_heads)"),
        ("scores / math.sqrt(T)", 5**-0.5, "1/sqrt(T_k)"),
        ("scores / T", 1 / 5, "1/T_k"),
        ("scores / math.sqrt(B)", 2**-0.5, "1/sqrt(batch)"),
        ("scores * self.d_k**-0.25", 6**-0.25, "head_dim**-0.25"),
        ("scores * self.d_k**-1.5", 6**-1.5, "1/(head_dim*sqrt(head_dim))"),
        ("scores / math.sqrt(2 * self.d_k)", 12**-0.5, "1/sqrt(2*head_dim)"),
    ],
)
def test_a_wrong_scale_has_its_name(
    by: str, value: float, named: str, measured: Measure, known: Known
) -> None:
    case = measured(scaled(by))
    scale = known(case.site.scale)
    assert scale.value == pytest.approx(value, rel=1e-7)
    assert (scale.named, scale.right, scale.follows_size) == (named, False, True)
    assert scale.expected == pytest.approx(DUE)
    assert places(case, scale) == [(round(value, 6), "scores", by)]
    assert case.site.info.spans["scale"].line == case.line(by)


@pytest.mark.parametrize(
    "edits",
    [
        (LINE, ""),
        ("scores / math.sqrt(self.d_k)", "scores * 1.0"),
    ],
)
def test_no_scale_is_one(edits: tuple[str, str], measured: Measure, known: Known) -> None:
    case = measured(edits)
    scale = known(case.site.scale)
    assert scale.value == pytest.approx(1, rel=1e-8)
    assert (scale.named, scale.right, scale.factors) == ("1", False, ())
    assert "scale" not in case.site.info.spans


def test_the_scale_may_stand_on_q_on_k_or_on_both(measured: Measure, known: Known) -> None:
    on_q = measured((LINE, ""), ("scores = q @", "scores = (q / math.sqrt(self.d_k)) @"))
    on_k = measured((LINE, ""), ("q @ k.t", "q @ (k / math.sqrt(self.d_k)).t"))
    both = measured(
        (LINE, "        pass\n"), ("q @ k.t", "(q * self.d_k**-0.25) @ (k * self.d_k**-0.25).t")
    )
    for case, on, factor in ((on_q, ["q"], DUE), (on_k, ["k"], DUE), (both, ["q", "k"], 6**-0.25)):
        scale = known(case.site.scale)
        assert scale.value == pytest.approx(DUE, rel=1e-7)
        assert (scale.named, scale.right) == ("1/sqrt(head_dim)", True)
        assert [f.on for f in scale.factors] == on
        assert [f.factor for f in scale.factors] == pytest.approx([factor] * len(on))


def test_scaled_twice(measured: Measure, known: Known) -> None:
    case = measured(("scores = q @ k", "scores = (q * self.d_k**-0.5) @ k"))
    scale = known(case.site.scale)
    assert scale.value == pytest.approx(1 / 6, rel=1e-7)
    assert (scale.named, scale.right) == ("1/head_dim", False)
    assert places(case, scale) == [
        (round(DUE, 6), "q", "q * self.d_k**-0.5"),
        (round(DUE, 6), "scores", "scores / math.sqrt(self.d_k)"),
    ]


def test_a_product_with_its_own_factor(measured: Measure, known: Known) -> None:
    text = (
        SPELLINGS["bmm"]
        .text.replace(LINE, "")
        .replace(
            "scores = torch.bmm(q, k.transpose(1, 2))",
            "scores = torch.baddbmm(x.new_zeros(1), q, k.transpose(1, 2), beta=0, alpha=self.d_k**-0.5)",
        )
    )
    case = measured(text=text)
    scale = known(case.site.scale)
    assert scale.value == pytest.approx(DUE, rel=1e-7)
    assert scale.right
    assert [(f.on, f.span.line) for f in scale.factors] == [("scores", case.line("baddbmm"))]


def test_the_scale_argument_of_sdpa(measured: Measure, known: Known) -> None:
    text = SPELLINGS["sdpa"].text.replace("(q, k, v)\n", "(q, k, v, scale=0.25)\n")
    scale = known(measured(text=text).site.scale)
    assert scale.value == pytest.approx(0.25, rel=1e-7)
    assert (scale.named, scale.right, scale.follows_size) == (None, False, False)


def test_a_coincidence_is_resolved_by_the_second_size(measured: Measure, known: Known) -> None:
    # At d_model 36 and h 6 the roots of h and of head_dim are the same number.
    build, call = "MHA(36, 6)", "torch.randn(2, 5, 36)"
    wrong = known(measured(scaled("scores / math.sqrt(self.h)"), build=build, call=call).site.scale)
    right = known(measured(build=build, call=call).site.scale)
    assert wrong.value == pytest.approx(right.value, rel=1e-7) == pytest.approx(6**-0.5)
    assert (wrong.named, wrong.right) == ("1/sqrt(num_heads)", False)
    assert (right.named, right.right) == ("1/sqrt(head_dim)", True)


def test_a_constant_does_not_follow_the_size(measured: Measure, known: Known) -> None:
    odd = known(measured(scaled("scores * 0.3")).site.scale)
    assert odd.value == pytest.approx(0.3, rel=1e-7)
    assert (odd.named, odd.follows_size, odd.right) == (None, False, False)
    lucky = known(measured(scaled("scores / math.sqrt(6)")).site.scale)
    assert lucky.value == pytest.approx(DUE, rel=1e-7)
    assert (lucky.named, lucky.follows_size) == ("1/sqrt(head_dim)", False)


def test_what_is_added_to_the_scores_does_not_count(measured: Measure, known: Known) -> None:
    case = measured(
        (
            "weights = scores.softmax",
            "scores = scores + torch.arange(T) * 0.7\n        weights = scores.softmax",
        ),
        (
            "scores = scores /",
            "scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -1e9)\n        scores = scores /",
        ),
    )
    assert known(case.site.scale).value == pytest.approx(DUE, rel=1e-7)
    assert known(case.site.scale).right


def test_soft_capping_is_no_scale(measured: Measure, known: Known) -> None:
    case = measured(scaled("5.0 * torch.tanh(scores / math.sqrt(self.d_k) / 5.0)"))
    assert known(case.site.scale).value == pytest.approx(DUE, rel=1e-6)


def test_a_factor_per_head(measured: Measure, known: Known) -> None:
    case = measured(scaled("scores * torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 4, 1, 1)"))
    scale = known(case.site.scale)
    assert scale.per_head == pytest.approx((1, 2, 3, 4), rel=1e-6)
    assert not scale.right


def test_a_learned_temperature(measured: Measure, known: Known) -> None:
    case = measured(
        (
            "self.h = num_heads",
            "self.h = num_heads\n        self.tau = nn.Parameter(torch.ones(num_heads, 1, 1))",
        ),
        scaled("scores * self.tau"),
    )
    scale = known(case.site.scale)
    assert scale.learned
    assert scale.factors == ()


def test_normalised_operands_have_no_due_scale(measured: Measure, known: Known) -> None:
    case = measured(
        (
            "scores = q @ k",
            "q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)\n        scores = q @ k",
        ),
        scaled("scores * 10.0"),
    )
    scale = known(case.site.scale)
    assert scale.normalised
    assert scale.value == pytest.approx(10, rel=1e-6)
    assert not known(measured().site.scale).normalised


def test_a_scale_that_the_caller_stated(measured: Measure, known: Known) -> None:
    case = measured(
        (
            "def __init__(self, d_model, num_heads):",
            "def __init__(self, d_model, num_heads, softmax_scale=0.3):",
        ),
        ("self.h = num_heads", "self.h = num_heads\n        self.softmax_scale = softmax_scale"),
        scaled("scores * self.softmax_scale"),
    )
    scale = known(case.site.scale)
    assert scale.value == pytest.approx(0.3, rel=1e-7)
    assert scale.stated == "softmax_scale"
    assert known(measured(scaled("scores * 0.3")).site.scale).stated is None


@pytest.mark.parametrize("which", ["q", "k"])
def test_folded_into_the_initialisation(which: str, measured: Measure, known: Known) -> None:
    edit = (
        "self.out_proj = nn.Linear(d_model, d_model)",
        "self.out_proj = nn.Linear(d_model, d_model)\n"
        f"        self.{which}_proj.weight.data /= math.sqrt(self.d_k)",
    )
    scale = known(measured((LINE, ""), edit).site.scale)
    assert scale.named == "1"
    assert scale.folded == pytest.approx(DUE, rel=0.1)
    ratio = scale.init_ratio if which == "q" else 1 / scale.init_ratio
    assert ratio == pytest.approx(DUE, rel=0.1)


def test_an_ordinary_initialisation_folds_nothing(measured: Measure, known: Known) -> None:
    scale = known(measured((LINE, "")).site.scale)
    assert scale.folded is None
    assert scale.init_ratio == pytest.approx(1, rel=0.1)


def test_a_factor_on_the_weights(measured: Measure, known: Known) -> None:
    case = measured(
        (LINE, ""), ("scores.softmax(dim=-1)", "scores.softmax(dim=-1) / math.sqrt(self.d_k)")
    )
    scale = known(case.site.scale)
    assert scale.value == pytest.approx(1, rel=1e-8)
    assert scale.after == pytest.approx(DUE, rel=1e-7)
    assert scale.after_named == "1/sqrt(head_dim)"


def test_a_factor_on_the_context(measured: Measure, known: Known) -> None:
    scale = known(measured(("context = weights @ v", "context = weights @ v / C")).site.scale)
    assert scale.right
    assert scale.after == pytest.approx(1 / 24, rel=1e-7)
    assert scale.after_named == "1/d_model"


def test_two_score_terms(measured: Measure, known: Known) -> None:
    edits = (
        ("self.h = num_heads", "self.h = num_heads\n        self.table = nn.Parameter(torch.randn(9, d_model // num_heads))"),
        ("scores = q @ k.transpose(-2, -1)", "scores = q @ k.transpose(-2, -1) + q @ self.table[:T].T"),
    )  # fmt: skip
    case = measured(*edits, scaled("scores / math.sqrt(2 * self.d_k)"))
    scale = known(case.site.scale)
    assert scale.terms == 2
    assert scale.value == pytest.approx(12**-0.5, rel=1e-7)
    assert (scale.named, scale.right) == ("1/sqrt(2*head_dim)", True)


def test_heads_mixed_before_the_softmax_leave_it_unknown(measured: Measure, why: Why) -> None:
    case = measured(
        (
            "self.h = num_heads",
            "self.h = num_heads\n        self.talk = nn.Linear(num_heads, num_heads, bias=False)",
        ),
        (
            LINE,
            LINE + "        scores = self.talk(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)\n",
        ),
    )
    kind, reason = why(case.site.scale)
    assert kind == "Unknown"
    assert reason == "the scale could not be measured: the heads are mixed before the softmax"


def test_without_a_product_no_scale_is_due(measured: Measure, why: Why) -> None:
    text = """\
class Additive(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w1, self.w2 = nn.Linear(width, width), nn.Linear(width, width)
        self.v = nn.Linear(width, 1)

    def forward(self, x):
        scores = self.v(torch.tanh(self.w1(x)[:, :, None] + self.w2(x)[:, None])).squeeze(-1)
        return scores.softmax(-1) @ x
"""
    case = measured(text=text, build="Additive(8)", call="torch.randn(2, 5, 8)")
    assert why(case.site.scale) == (
        "NotApplicable",
        "the scores are no product of queries and keys",
    )


def test_the_evidence_gives_the_number(measured: Measure) -> None:
    evidence = measured(scaled("scores / math.sqrt(C)")).site.scale
    assert f"input grows by {24**-0.5:.6g}" in getattr(evidence, "evidence", "")
    assert math.isclose(24**-0.5, 0.204124, rel_tol=1e-5)


def test_a_temperature_that_the_caller_sets(measured: Measure, known: Known) -> None:
    text = (
        (
            "def __init__(self, d_model, num_heads):",
            "def __init__(self, d_model, num_heads, temperature):",
        ),
        ("self.h = num_heads", "self.h = num_heads\n        self.temperature = temperature"),
    )
    case = measured(*text, scaled("scores / self.d_k / self.temperature"), build="MHA(24, 4, 0.1)")
    scale = known(case.site.scale)
    assert scale.value == pytest.approx(1 / 0.6)
    assert scale.stated == "1/temperature"


def test_a_scale_that_cancels(measured: Measure, why: Why) -> None:
    kernel = "scores.abs() / scores.abs().sum(-1, keepdim=True)"
    case = measured(scaled("scores * 3"), ("scores.softmax(dim=-1)", kernel))
    assert why(case.site.scale) == (
        "NotApplicable",
        "the weights are divided by their sum, in which any scale cancels",
    )


SPARSE = """
def sparse(s):
    ordered = s.sort(-1, descending=True).values
    total = ordered.cumsum(-1) - 1
    count = (ordered * torch.arange(1, s.shape[-1] + 1) > total).sum(-1, keepdim=True)
    return (s - total.gather(-1, count - 1) / count).clamp(min=0)


class MHA(nn.Module):"""


def test_factors_of_another_normaliser(measured: Measure, known: Known, why: Why) -> None:
    edits = [("class MHA(nn.Module):", SPARSE), ("scores.softmax(dim=-1)", "sparse(scores)")]
    right = known(measured(*edits).site.scale)
    assert right.right and right.named == "1/sqrt(head_dim)"
    case = measured(*edits, scaled("scores / math.sqrt(self.d_k) / 2"))
    assert why(case.site.scale) == (
        "Unknown",
        "the normaliser is no softmax, and which of the factors are its own is not known",
    )


ALIGNED = """\
class Aligned(nn.Module):
    def forward(self, x, y):
        return (x @ y.transpose(1, 2)).softmax(-1) @ y
"""


def test_raw_states_that_are_compared(measured: Measure, why: Why) -> None:
    call = "torch.randn(2, 5, 16), torch.randn(2, 7, 16)"
    reason = "one head without W_Q, W_K or W_V is Luong's attention, which has no scale"
    case = measured(text=ALIGNED, build="Aligned()", call=call)
    assert why(case.site.scale) == ("NotApplicable", reason)


def test_two_terms_of_which_one_is_scaled_again(measured: Measure, known: Known) -> None:
    case = measured(scaled("scores * (2 * self.d_k) ** -0.5 / math.sqrt(self.d_k)"))
    found = known(case.site.scale)
    assert found.value == pytest.approx(2**-0.5 / 6, rel=1e-7)
    assert (found.named, found.right) == ("1/sqrt(2*head_dim)/sqrt(head_dim)", False)
