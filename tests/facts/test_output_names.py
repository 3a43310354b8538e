"""What the code calls what it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.output_names import name_of_output, says_weights

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

RETURN = "return self.out_proj(merged)"


@pytest.mark.parametrize(
    ("last", "names"),
    [
        (RETURN, [""]),
        ("return self.out_proj(merged), weights", ["", "weights"]),
        ("return merged, weights.mean(1)", ["merged", "weights"]),
        ("return merged, scores.softmax(-1)", ["merged", ""]),
        ("return [merged, self.out_proj(merged)]", ["merged", ""]),
        ("return {'y': merged, 'attn': weights}", ["y", "attn"]),
    ],
)
def test_names(last: str, names: list[str], measured: Measure) -> None:
    bench = measured((RETURN, last)).bench
    assert [name_of_output(bench, i) for i in range(len(bench.recording.outputs))] == names


def test_returns_that_disagree_name_nothing(measured: Measure) -> None:
    last = "if T > 99:\n            return merged, x\n        return merged, weights"
    bench = measured((RETURN, last)).bench
    assert [name_of_output(bench, i) for i in range(2)] == ["merged", ""]


@pytest.mark.parametrize(
    ("name", "strict", "loose"),
    [
        ("attn_weights", True, True),
        ("probs", True, True),
        ("attn", False, True),
        ("attn_scores", False, False),
        ("weight_logits", False, False),
        ("alignment", False, False),
        ("", False, False),
    ],
)
def test_which_names_say_weights(name: str, strict: bool, loose: bool) -> None:
    assert (says_weights(name, False), says_weights(name, True)) == (strict, loose)
