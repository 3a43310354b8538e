"""Sizes and head counts, told by which channels each group of an operand reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.facts import Dims
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]


@pytest.mark.parametrize("name", SPELLINGS)
def test_sizes_of_every_spelling(name: str, measured: Measure, known: Known) -> None:
    spelling = SPELLINGS[name]
    case = measured(text=spelling.text, build=spelling.build, call=spelling.call)
    assert known(case.site.dims) == spelling.dims
    assert case.site.info.kind is spelling.kind


@pytest.mark.parametrize(
    ("build", "call", "dims"),
    [
        ("MHA(30, 5)", "torch.randn(3, 7, 30)", Dims(30, 5, 5, 6, 6, 7, 7, 3)),
        ("MHA(14, 1)", "torch.randn(2, 3, 14)", Dims(14, 1, 1, 14, 14, 3, 3, 2)),
        ("MHA(12, 12)", "torch.randn(2, 3, 12)", Dims(12, 12, 12, 1, 1, 3, 3, 2)),
        ("MHA(24, 4)", "torch.randn(1, 5, 24)", Dims(24, 4, 4, 6, 6, 5, 5, 1)),
    ],
)
def test_other_sizes(build: str, call: str, dims: Dims, measured: Measure, known: Known) -> None:
    assert known(measured(build=build, call=call).site.dims) == dims


def test_one_key_head_for_all(measured: Measure, known: Known) -> None:
    case = measured(
        text=SPELLINGS["grouped"].text,
        build="GroupedAttention(24, 4, 1)",
        call="torch.randn(3, 5, 24)",
    )
    assert known(case.site.dims) == Dims(24, 4, 1, 6, 6, 5, 5, 3)


def test_values_wider_than_keys(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.v_proj = nn.Linear(d_model, d_model)", "self.v_proj = nn.Linear(d_model, 40)"),
        ("self.out_proj = nn.Linear(d_model, d_model)", "self.out_proj = nn.Linear(40, d_model)"),
        ("v = self.v_proj(x).view(B, T, self.h, self.d_k)", "v = self.v_proj(x).view(B, T, self.h, 10)"),
        ("reshape(B, T, C)", "reshape(B, T, 40)"),
    )  # fmt: skip
    assert known(case.site.dims) == Dims(24, 4, 4, 6, 10, 5, 5, 2)


def test_heads_of_a_ready_made_argument(measured: Measure, known: Known) -> None:
    text = """\
def attend(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(scores, dim=-1) @ v
"""
    call = "torch.randn(2, 4, 5, 6), torch.randn(2, 4, 7, 6), torch.randn(2, 4, 7, 6)"
    case = measured(text=text, build="attend", call=call)
    assert known(case.site.dims) == Dims(24, 4, 4, 6, 6, 5, 7, 2)


def test_linear_attention_has_no_score_matrix(measured: Measure, why: Why) -> None:
    case = measured(
        ("        scores = q @ k.transpose(-2, -1)\n", ""),
        ("        scores = scores / math.sqrt(self.d_k)\n", ""),
        ("        weights = scores.softmax(dim=-1)\n", ""),
        (
            "context = weights @ v",
            "context = q.softmax(-1) @ (k.softmax(-2).transpose(-2, -1) @ v)",
        ),
    )
    assert [s.info.kind.value for s in case.facts.sites] == ["linear"]
    assert why(case.site.dims) == (
        "NotApplicable",
        "linear attention has no (T_q, T_k) scores",
    )


def test_evidence_holds_the_recorded_shape(measured: Measure) -> None:
    assert getattr(measured().site.dims, "evidence", "") == "scores (2, 4, 5, 5)"
