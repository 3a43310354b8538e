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
    assert (found.function, found.axes) == ("other", ("keys",))
    assert found.row_sums == pytest.approx((1, 1), abs=1e-9)


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
