"""Returned weights beside the applied ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.facts import NotApplicable
from mha_lint.model.numeric_facts import ReturnFault

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

WEIGHTS = "weights = scores.softmax(dim=-1)"
RETURN = "return self.out_proj(merged)"
FUTURE = "torch.ones(T, T).triu(1).bool()"


def returned(measured: Measure, last: str, *edits: tuple[str, str]) -> Any:
    return measured((RETURN, f"{RETURN}, {last}"), *edits)


@pytest.mark.parametrize(
    "last",
    [
        "weights",
        "weights.mean(1)",
        "weights[:, :, 0]",
        "weights.log()",
        "weights * 2",
        "weights.transpose(0, 1)",
        "(x @ x.transpose(1, 2)).softmax(-1) * weights.mean(1)",
        "scores.softmax(-1)",
        "scores.softmax(-1).mean(dim=1)",
    ],
)
def test_what_is_made_from_the_applied_weights(last: str, measured: Measure, known: Known) -> None:
    fact = returned(measured, last).site.returned
    assert isinstance(fact, NotApplicable) or known(fact).fault is None


def test_nothing_that_could_be_weights(measured: Measure, why: Why) -> None:
    assert why(measured().site.returned) == ("NotApplicable", "no weights are returned")
    fact = returned(measured, "q, k").site.returned
    assert why(fact) == ("NotApplicable", "no weights are returned")


@pytest.mark.parametrize("name", ["scores", "logits", "attn"])
def test_scores_under_their_own_name(name: str, measured: Measure, why: Why) -> None:
    case = returned(measured, name, (WEIGHTS, f"logits = attn = scores\n        {WEIGHTS}"))
    assert why(case.site.returned)[0] == "NotApplicable"


def test_scores_under_a_name_that_says_weights(measured: Measure, known: Known) -> None:
    case = returned(
        measured, "attn_weights", (WEIGHTS, f"attn_weights = scores\n        {WEIGHTS}")
    )
    found = known(case.site.returned)
    assert (found.fault, found.name, found.output) == (ReturnFault.SCORES, "attn_weights", "[1]")
    assert found.span.line == case.line("return")


@pytest.mark.parametrize(
    "applied",
    [
        f"shown = scores.softmax(-1)\n        weights = scores.masked_fill({FUTURE}, -math.inf).softmax(-1)",
        f"shown = scores.softmax(-1)\n        weights = shown * ~{FUTURE}\n"
        "        weights = weights / weights.sum(-1, keepdim=True)",
    ],
)
def test_weights_from_before_a_mask(applied: str, measured: Measure, known: Known) -> None:
    case = returned(measured, "shown", (WEIGHTS, applied))
    found = known(case.site.returned)
    assert (found.fault, found.name) == (ReturnFault.HIDDEN, "shown")
    assert found.largest > 0.1
    assert found.span.line in (case.line("return"), case.line("shown = "))


def test_weights_that_were_made_again(measured: Measure, known: Known) -> None:
    edit = (WEIGHTS, f"shown = (2 * scores).softmax(-1)\n        {WEIGHTS}")
    found = known(returned(measured, "shown", edit).site.returned)
    assert (found.fault, found.scale) == (ReturnFault.OTHER, pytest.approx(2))
    mean = known(returned(measured, "shown.mean(1)", edit).site.returned)
    assert (mean.fault, mean.scale) == (ReturnFault.OTHER, None)


def test_the_transpose(measured: Measure, known: Known) -> None:
    case = returned(measured, "weights.transpose(-2, -1)")
    found = known(case.site.returned)
    assert (found.fault, found.name) == (ReturnFault.TRANSPOSED, "weights")
    other = returned(measured, "alignment", (WEIGHTS, f"{WEIGHTS}\n        alignment = weights.mT"))
    assert known(other.site.returned).fault is None


def test_keys_first_is_a_layout(measured: Measure, known: Known) -> None:
    case = returned(
        measured,
        "weights",
        ("scores = q @ k.transpose(-2, -1)", "scores = k @ q.transpose(-2, -1)"),
        (WEIGHTS, WEIGHTS.replace("dim=-1", "dim=-2")),
        ("context = weights @ v", "context = weights.transpose(-2, -1) @ v"),
    )
    assert known(case.site.returned).fault is None


LAYERS = """\
class Two(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.a = nn.MultiheadAttention(d_model, num_heads, batch_first=True)
        self.b = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, x):
        y, one = self.a(x, x, x)
        y, two = self.b(x + y, x + y, x + y)
        return y, LAST
"""


@pytest.mark.parametrize(
    ("last", "faults"),
    [
        ("[one, one]", [None, ReturnFault.REPEATED]),
        ("[two, two]", [ReturnFault.REPEATED, None]),
        ("[one, two]", [None, None]),
        ("two", [None, None]),
        ("(one, two, two)", [None, None]),
    ],
)
def test_layers(last: str, faults: list[Any], measured: Measure) -> None:
    case = measured(text=LAYERS.replace("LAST", last), build="Two(24, 4)")
    facts = [s.returned for s in case.facts.sites]
    assert [f.value.fault if hasattr(f, "evidence") else None for f in facts] == faults
