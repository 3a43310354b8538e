"""Weights that go on in the place of what they should sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

SQUARE = "torch.randn(2, 6, 24)"
"""As many positions as channels of one head, so that W_O takes the weights."""
WHY = ("NotApplicable", "nothing reads the context: the weights take its place")


def test_the_line_that_takes_the_weights(measured: Measure, known: Known, why: Why) -> None:
    case = measured(("merged = context.", "merged = weights."), call=SQUARE)
    roles = known(case.site.roles)
    assert roles.value_is == "weights"
    assert "v_proj.weight" in roles.unused
    assert case.site.roles.evidence == (  # type: ignore[union-attr]
        "nothing reads the result of the product with V; out_proj reads the weights"
    )
    assert case.site.info.spans["weights_taken"].line == case.line("merged = weights.")
    assert why(case.site.merge) == why(case.site.output_projection) == WHY
    assert known(case.site.dims).num_heads == 4


def test_the_call_whose_results_are_exchanged(measured: Measure, known: Known) -> None:
    helper = "def attend(q, k, v):\n    w = (q @ k.mT / 6**0.5).softmax(-1)\n    return w @ v, w\n\n\nclass MHA"
    case = measured(
        ("class MHA", helper),
        ("        scores = q @ k.transpose(-2, -1)\n        scores = scores / math.sqrt(self.d_k)\n", ""),
        ("        weights = scores.softmax(dim=-1)\n", ""),
        ("context = weights @ v", "weights, context = attend(q, k, v)"),
        call=SQUARE,
    )  # fmt: skip
    assert known(case.site.roles).value_is == "weights"
    assert case.marked(case.site.info.spans["weights_taken"]) == "attend(q, k, v)"


def test_weights_that_are_all_that_is_returned(measured: Measure, known: Known) -> None:
    case = measured(("return self.out_proj(merged)", "return weights"))
    assert known(case.site.roles).value_is == "weights"
    assert case.marked(case.site.info.spans["weights_taken"]) == "return weights"


def test_weights_beside_the_output_are_no_fault(measured: Measure, known: Known) -> None:
    case = measured(("return self.out_proj(merged)", "return self.out_proj(merged), weights"))
    assert known(case.site.roles).value_is == "v"
