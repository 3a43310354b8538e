"""Where masks of 0 and 1 that are added are at fault: where they are made, or where they are added."""

from __future__ import annotations

import pytest

from mha_lint.facts.masks.masking import measure_masking
from mha_lint.model.facts import Known
from tests.facts.conftest import Measure
from tests.facts.masks.spelled import masked
from tests.facts.masks.test_ignored import given
from tests.facts.masks.test_masking import masking

LAYERS = """\
class Inner(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, x, bias):
        return x + self.attn(x, x, x, attn_mask=bias, need_weights=False)[0]


class Outer(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.inner = Inner(d_model, num_heads)

    def forward(self, x):
        T = x.shape[1]
        m = torch.ones(T, T).triu(1)
        return self.inner(x, m)
"""


@pytest.mark.parametrize(
    ("edits", "line"),
    [
        ((), "triu(1)"),
        ((("torch.ones(T, T).triu(1)", "torch.ones(T, T).bool().triu(1).float()"),), "triu(1)"),
        # Truth values are no numbers yet where they are handed over.
        (
            (("triu(1)", "triu(1).bool()"), ("attn_mask=bias", "attn_mask=bias.float()")),
            "self.attn(x",
        ),
    ],
)
def test_the_line_at_fault(
    edits: tuple[tuple[str, str], ...], line: str, measured: Measure
) -> None:
    case = measured(*edits, text=LAYERS, build="Outer(24, 4)", call="torch.randn(2, 5, 24)")
    (number,) = masking(case).numbers
    assert (number.how, number.value) == ("added", 1.0)
    assert number.span is not None and number.span.line == case.line(line)


@pytest.mark.parametrize(("made", "found"), [("(keep > 0)", ["multiplied"]), ("keep", [])])
def test_a_guessed_mask_says_nothing_but_what_a_comparison_made_of_it(
    measured: Measure, made: str, found: list[str]
) -> None:
    text = given(masked(f"scores = scores * {made}.to(scores.dtype)[:, None]"), "keep")
    case = measured(text=text, call="torch.randn(2, 5, 24), torch.ones(2, 5, 5, dtype=torch.bool)")
    fact = measure_masking(case.bench, case.bench.sites[0], guessed=True)
    assert isinstance(fact, Known)
    assert [n.how for n in fact.value.numbers] == found
