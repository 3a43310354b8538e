"""Inputs with an axis of positions that attention leaves alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.causal.frames import leaves_frames_apart

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

TEXT = """
class Within(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        whole = x.shape
        q, k, v = self.qkv(CUT).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v).reshape(whole)
"""
GIVEN = """
def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)
"""


@pytest.mark.parametrize(
    ("cut", "apart"),
    [("x", True), ("x.flatten(0, 1)", True), ("x.flatten(1, 2)", False)],
)
def test_what_attention_runs_over(cut: str, apart: bool, measured: Measure) -> None:
    text = TEXT.replace("CUT", cut)
    case = measured(text=text, build="Within(12)", call="torch.randn(2, 3, 5, 12)")
    assert leaves_frames_apart(case.bench, case.bench.sites[0]) is apart


def test_samples_are_no_frames(measured: Measure) -> None:
    case = measured()
    assert not leaves_frames_apart(case.bench, case.bench.sites[0])


def test_heads_of_ready_made_queries_are_no_frames(measured: Measure) -> None:
    call = ", ".join(["torch.randn(2, 4, 5, 6)"] * 3)
    case = measured(text=GIVEN, build="causal", call=call)
    assert not leaves_frames_apart(case.bench, case.bench.sites[0])
