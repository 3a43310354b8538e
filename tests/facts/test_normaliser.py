"""The normaliser: which function, over which axes, as the reader sees them, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

SOFTMAX = "scores.softmax(dim=-1)"


@pytest.mark.parametrize("name", SPELLINGS)
def test_softmax_over_keys_in_every_spelling(name: str, measured: Measure, known: Known) -> None:
    spelling = SPELLINGS[name]
    case = measured(text=spelling.text, build=spelling.build, call=spelling.call)
    found = known(case.site.normaliser)
    assert (found.function, found.axes) == ("softmax", ("keys",))
    assert (found.axis, found.shape) == (spelling.axis, spelling.shape)
    assert found.row_sums == pytest.approx((1, 1), abs=1e-9)
    assert (found.times, found.renormalised) == (1, False)
    assert found.contracted_axis == f"axis {spelling.axis[0]}"
    assert case.marked(case.site.info.spans["softmax"]) == spelling.softmax


@pytest.mark.parametrize(
    ("dim", "axis", "over"),
    [
        ("-2", 2, "queries"),
        ("2", 2, "queries"),
        ("1", 1, "heads"),
        ("0", 0, "batch"),
        ("3", 3, "keys"),
    ],
)
def test_softmax_over_another_axis(
    dim: str, axis: int, over: str, measured: Measure, known: Known
) -> None:
    case = measured((SOFTMAX, f"scores.softmax(dim={dim})"))
    found = known(case.site.normaliser)
    assert (found.function, found.axes, found.axis) == ("softmax", (over,), (axis,))
    assert (found.shape, found.contracted_axis) == ("(B, h, T_q, T_k)", "axis 3")
    if over != "keys":
        assert found.row_sums[1] - found.row_sums[0] > 0.05
    assert case.site.info.spans["softmax"].line == case.line("weights = ")


def test_a_softmax_over_the_one_query(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.q_proj(x).view(B, T, self.h, self.d_k)", "self.q_proj(x[:, :1]).view(B, 1, self.h, self.d_k)"),
        (SOFTMAX, "scores.softmax(dim=-2)"),
        ("reshape(B, T, C)", "reshape(B, 1, C)"),
    )  # fmt: skip
    found = known(case.site.normaliser)
    assert (found.function, found.axes, found.axis) == ("softmax", ("queries",), (2,))
    assert found.row_sums == pytest.approx((5, 5))


def test_slots_that_compete_and_are_weighed_over_keys(measured: Measure, why: Why) -> None:
    renormalised = "(w := scores.softmax(dim=-2) + 1e-8) / w.sum(-1, keepdim=True)"
    case = measured((SOFTMAX, renormalised))
    assert why(case.site.normaliser) == (
        "NotApplicable",
        "the softmax runs over queries, and a sum over the keys normalises the weights after it, as"
        " in slot attention",
    )


def test_key_first_scores_with_the_usual_axis(measured: Measure, known: Known) -> None:
    text = SPELLINGS["key-first"].text.replace("softmax(dim=-2)", "softmax(dim=-1)")
    found = known(measured(text=text).site.normaliser)
    assert (found.axes, found.axis, found.shape) == (("queries",), (3,), "(B, h, T_k, T_q)")
    assert found.contracted_axis == "axis 2"


def test_a_softmax_layer_is_placed_where_it_was_made(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.h = num_heads", "self.h = num_heads\n        self.norm = nn.Softmax(dim=1)"),
        (SOFTMAX, "self.norm(scores)"),
    )
    assert known(case.site.normaliser).axes == ("heads",)
    assert case.marked(case.site.info.spans["softmax"]) == "self.norm = nn.Softmax(dim=1)"


def test_a_softmax_over_keys_of_all_heads(measured: Measure, known: Known) -> None:
    case = measured(
        (
            SOFTMAX,
            "scores.transpose(1, 2).flatten(2).softmax(-1).view(B, T, self.h, T).transpose(1, 2)",
        )
    )
    found = known(case.site.normaliser)
    assert found.axes == ("heads", "keys")
    assert found.shape == "(B, T_q, h*T_k)"


def test_a_softmax_written_out(measured: Measure, known: Known) -> None:
    case = measured(
        ("        weights = scores.softmax(dim=-1)\n",
         "        e = torch.exp(scores - scores.amax(-1, keepdim=True))\n"
         "        weights = e / e.sum(-1, keepdim=True)\n"),
    )  # fmt: skip
    found = known(case.site.normaliser)
    assert (found.function, found.axes, found.axis, found.times) == ("softmax", ("keys",), (3,), 1)


def test_a_softmax_written_out_over_queries(measured: Measure, known: Known) -> None:
    case = measured(
        ("        weights = scores.softmax(dim=-1)\n",
         "        e = torch.exp(scores)\n"
         "        weights = e / e.sum(-2, keepdim=True)\n"),
    )  # fmt: skip
    found = known(case.site.normaliser)
    assert (found.function, found.axes, found.axis) == ("softmax", ("queries",), (2,))
    assert case.site.info.spans["softmax"].line == case.line("e / e.sum")


@pytest.mark.parametrize(
    ("spelling", "function"),
    [
        ("scores", "none"),
        ("torch.sigmoid(scores)", "sigmoid"),
        ("scores.relu()", "relu"),
        ("F.softplus(scores)", "softplus"),
        ("scores.exp()", "exp"),
    ],
)
def test_no_normaliser(spelling: str, function: str, measured: Measure, known: Known) -> None:
    case = measured((SOFTMAX, spelling))
    found = known(case.site.normaliser)
    assert (found.function, found.axes, found.axis) == (function, (), ())
    low, high = found.row_sums
    assert high - low > 0.1
    assert ("softmax" in case.site.info.spans) == (function != "none")


def test_scores_that_only_are_divided_by_their_sum(measured: Measure, known: Known) -> None:
    case = measured((SOFTMAX, "scores.abs() / scores.abs().sum(-1, keepdim=True)"))
    found = known(case.site.normaliser)
    assert (found.function, found.axes) == ("simplex", ("keys",))
    assert found.row_sums == pytest.approx((1, 1), abs=1e-9)


def test_one_beside_the_sum_keeps_it_below_one(measured: Measure, known: Known) -> None:
    case = measured((SOFTMAX, "scores**2 / (1 + (scores**2).sum(-1, keepdim=True))"))
    found = known(case.site.normaliser)
    assert (found.function, found.axes) == ("simplex", ("keys",))
    assert 0 < found.row_sums[0] < found.row_sums[1] < 1


def test_a_plain_sum_has_both_signs(measured: Measure, known: Known) -> None:
    found = known(measured((SOFTMAX, "scores / scores.sum(-1, keepdim=True)")).site.normaliser)
    assert found.function == "sum"


@pytest.mark.parametrize(
    "by", ["weights.sum(-1, keepdim=True)", "(weights.sum(-1, keepdim=True) + 1)"]
)
def test_queries_that_compete_and_then_average(
    by: str, measured: Measure, known: Known, why: Why
) -> None:
    line = "        weights = scores.softmax(dim=-1)\n"
    shares = "        weights = scores.softmax(dim=-2) + 1e-4\n"
    kind, reason = why(
        measured((line, f"{shares}        weights = weights / {by}\n")).site.normaliser
    )
    assert kind == "NotApplicable"
    assert reason.startswith("the softmax runs over queries, and a sum over the keys normalises")
    assert known(measured((line, shares)).site.normaliser).axes == ("queries",)


@pytest.mark.parametrize(
    ("spelling", "averaged"),
    [
        ("scores.relu() / T", True),
        ("(scores / T).relu() ** 2", True),
        ("torch.sigmoid(scores - math.log(T))", True),
        ("torch.sigmoid(scores)", False),
        ("scores.relu()", False),
        ("scores.exp()", False),
        ("scores", False),
    ],
)
def test_weights_scaled_to_the_number_of_keys(
    spelling: str, averaged: bool, measured: Measure, known: Known
) -> None:
    assert known(measured((SOFTMAX, spelling)).site.normaliser).averaged is averaged


def test_one_factor_that_is_the_scale_says_nothing(measured: Measure, known: Known) -> None:
    edits = [("math.sqrt(self.d_k)", "T"), (SOFTMAX, "scores")]
    case = measured(*edits, build="MHA(36, 4)", call="torch.randn(2, 3, 36)")
    assert not known(case.site.normaliser).averaged  # T_k is 3, sqrt(d_k) too
    assert known(measured(*edits).site.normaliser).averaged


def test_a_sum_that_is_divided_out_later(measured: Measure, why: Why) -> None:
    case = measured(
        (SOFTMAX, "scores.exp()"),
        ("context = weights @ v", "context = weights @ v / weights.sum(-1, keepdim=True)"),
    )
    assert why(case.site.normaliser) == (
        "NotApplicable",
        "the sum of the weights is divided out behind the product with V",
    )


def test_a_norm_of_the_context(measured: Measure, why: Why) -> None:
    case = measured((SOFTMAX, "scores"), ("= weights @ v", "= F.normalize(weights @ v, dim=-1)"))
    assert why(case.site.normaliser) == (
        "NotApplicable",
        "a norm of the context stands in the place of the softmax",
    )


def test_two_softmaxes_side_by_side(measured: Measure, why: Why) -> None:
    case = measured((SOFTMAX, "scores.softmax(-1) * scores.softmax(-2)"))
    assert why(case.site.normaliser) == (
        "Unknown",
        "several normalisers of the same scores are put together",
    )


def test_scores_that_are_mixed_with_each_other(measured: Measure, why: Why) -> None:
    case = measured((SOFTMAX, "(scores + scores.sigmoid().cumsum(-1)).softmax(-1)"))
    assert why(case.site.normaliser) == (
        "Unknown",
        "the scores are mixed with each other before the softmax",
    )


def test_what_the_reference_can_follow_is_plain(measured: Measure, known: Known) -> None:
    assert known(measured().site.normaliser).plain
    capped = measured((SOFTMAX, "(5 * torch.tanh(scores / 5)).softmax(dim=-1)"))
    assert not known(capped.site.normaliser).plain
    added = measured((SOFTMAX, SOFTMAX + " + torch.eye(T)"))
    assert not known(added.site.normaliser).plain


ASSIGNED = """\
class Assigned(nn.Module):
    def __init__(self, width, clusters):
        super().__init__()
        self.score = nn.Linear(width, clusters)

    def forward(self, x):
        share = self.score(x).softmax(dim=-1)
        return share.transpose(1, 2) @ x
"""


def test_an_assignment_to_a_codebook(measured: Measure, why: Why) -> None:
    case = measured(text=ASSIGNED, build="Assigned(12, 4)", call="torch.randn(2, 7, 12)")
    assert why(case.site.normaliser) == (
        "NotApplicable",
        "positions are assigned to learned queries, as to a codebook",
    )


PAIRS = """\
class Pairs(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.u, self.w = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, y):
        scores = self.a(x) @ self.b(y).transpose(1, 2)
        weights = scores.flatten(1).softmax(-1).view_as(scores)
        return torch.einsum("bik,bij,bjk->bk", self.u(x), weights, self.w(y))
"""


def test_one_distribution_over_all_pairs(measured: Measure, why: Why) -> None:
    call = "torch.randn(2, 7, 12), torch.randn(2, 5, 12)"
    case = measured(text=PAIRS, build="Pairs(12)", call=call)
    assert why(case.site.normaliser) == (
        "NotApplicable",
        "one distribution over all pairs: both sides are pooled by it",
    )


def test_two_softmaxes_in_a_row(measured: Measure, known: Known) -> None:
    case = measured((SOFTMAX, SOFTMAX + ".softmax(dim=-1)"))
    assert known(case.site.normaliser).times == 2
    assert case.site.info.spans["repeated"].line == case.line(".softmax(dim=-1).softmax(dim=-1)")
    assert "repeated" not in measured().site.info.spans


def test_dividing_by_the_sum_again_only_restores_it(measured: Measure, known: Known) -> None:
    line = "        weights = scores.softmax(dim=-1)\n"
    more = (
        "        weights = weights * torch.ones(T, T).tril()\n"
        "        weights = weights / weights.sum(-1, keepdim=True)\n"
    )
    found = known(measured((line, line + more)).site.normaliser)
    assert (found.times, found.renormalised) == (1, True)
    assert found.row_sums == pytest.approx((1, 1), abs=1e-9)


def test_a_log_softmax_is_no_distribution(measured: Measure, known: Known) -> None:
    found = known(measured((SOFTMAX, "F.log_softmax(scores, dim=-1)")).site.normaliser)
    assert found.row_sums[1] < 0


def test_the_axis_is_implicit(measured: Measure, known: Known) -> None:
    case = measured((SOFTMAX, "F.softmax(scores, dim=None, _stacklevel=5)"))
    found = known(case.site.normaliser)
    assert found.implicit
    assert found.axes == ("heads",)  # torch takes axis 1 of four
    assert not known(measured().site.normaliser).implicit


def test_linear_attention_normalises_no_scores(measured: Measure, why: Why) -> None:
    case = measured(
        ("        scores = q @ k.transpose(-2, -1)\n", ""),
        ("        scores = scores / math.sqrt(self.d_k)\n", ""),
        ("        weights = scores.softmax(dim=-1)\n", ""),
        (
            "context = weights @ v",
            "context = q.softmax(-1) @ (k.softmax(-2).transpose(-2, -1) @ v)",
        ),
    )
    kind, reason = why(case.site.normaliser)
    assert (kind, reason) == (
        "NotApplicable",
        "linear attention has no (T_q, T_k) scores to normalise",
    )
