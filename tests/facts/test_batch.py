"""Attention over the batch: only where the code or the call tells which axis is the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

OVER_FIRST = """\
class Sequence(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, num_heads)
        self.head = nn.Linear(d_model, 3)

    def forward(self, x):
        out, _ = self.attention(x, x, x, need_weights=False)
        return self.head({pooled})
"""
CALL = "torch.randn(3, 7, 24)"


def test_pooling_over_positions_says_what_the_batch_is(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out.mean(dim=1)")
    case = measured(text=text, build="Sequence(24, 4)", call=CALL)
    found = known(case.facts.batch)
    assert (found.mixes, found.axis, found.intended, found.inferred) == (True, 0, False, False)
    assert found.why_batch == "the code pools over axis 1: out.mean(dim=1)"
    assert found.largest > 1e-3
    assert found.span.line == case.line("self.attention(x")
    assert case.facts.batch.evidence == (  # type: ignore[union-attr]
        "changing sample 0 of x alone changes the outputs of the other samples by up to"
        f" {found.largest:.1g}; axis 1 is never attended over"
    )


def test_time_first_code_is_right(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out.mean(dim=0)")
    case = measured(text=text, build="Sequence(24, 4)", call=CALL)
    assert known(case.facts.batch).mixes is False
    assert known(case.facts.batch).largest == 0


def test_batch_first_is_right(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out.mean(dim=1)").replace(
        "(d_model, num_heads)\n        self.head",
        "(d_model, num_heads, batch_first=True)\n        self.head",
    )
    assert "batch_first" in text
    case = measured(text=text, build="Sequence(24, 4)", call=CALL)
    assert known(case.facts.batch).mixes is False


def test_the_plain_module(measured: Measure, known: Known) -> None:
    found = known(measured().facts.batch)
    assert (found.mixes, found.axis, found.span) == (False, 0, None)
    assert measured().facts.batch.evidence == (  # type: ignore[union-attr]
        "no sample's output moves with another sample"
    )


SPLIT = "view(B, T, self.h, self.d_k).transpose(1, 2)"


def test_a_shape_that_is_unpacked_names_the_batch(measured: Measure, known: Known) -> None:
    edits = [
        (f"{w} = self.{w}_proj(x).{SPLIT}",
         f"{w} = self.{w}_proj(x).view(B, T, self.h, self.d_k).permute(1, 2, 0, 3)")
        for w in "qkv"
    ]  # fmt: skip
    case = measured(
        *edits,
        (
            "context.transpose(1, 2).reshape(B, T, C)",
            "context.permute(2, 0, 1, 3).reshape(B, T, C)",
        ),
    )
    found = known(case.facts.batch)
    assert (found.mixes, found.inferred) == (True, False)
    assert found.why_batch == "the code says B, T, C = x.shape"
    assert found.span.line == case.line("scores = q @")


def test_what_the_call_alone_says_is_inferred(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out")
    found = known(measured(text=text, build="Sequence(24, 4)", call=CALL).facts.batch)
    assert (found.mixes, found.inferred) == (True, True)
    assert found.why_batch == "the call passes 3 x 7, fewer samples than positions"
    longer = measured(text=text, build="Sequence(24, 4)", call="torch.randn(7, 3, 24)")
    assert known(longer.facts.batch).mixes is False


@pytest.mark.parametrize(
    ("comment", "mixes"),
    [("# x: (batch, seq, d_model)", True), ("# x: (seq_len, batch, d_model)", False)],
)
def test_a_comment_says_which_axis(
    comment: str, mixes: bool, measured: Measure, known: Known
) -> None:
    text = OVER_FIRST.format(pooled="out").replace(
        "        out, _", f"        {comment}\n        out, _"
    )
    found = known(measured(text=text, build="Sequence(24, 4)", call=CALL).facts.batch)
    assert found.mixes is mixes
    if mixes:
        assert found.why_batch == "a comment or docstring writes the shape batch-first"
        assert found.inferred is True


def test_an_exchange_between_samples_may_be_meant(measured: Measure, known: Known) -> None:
    text = OVER_FIRST.format(pooled="out.mean(dim=1)").replace(
        "        out, _",
        '        """Let samples of a batch attend to one another."""\n        out, _',
    )
    found = known(measured(text=text, build="Sequence(24, 4)", call=CALL).facts.batch)
    assert (found.mixes, found.intended) == (True, True)
