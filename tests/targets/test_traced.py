"""Where no call succeeds, a symbolic trace says where attention seems to stand and what to pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from mha_lint.model.report import NotChecked
from mha_lint.targets import traced as module
from mha_lint.targets.subject import Subject
from mha_lint.targets.traced import traced

if TYPE_CHECKING:
    from tests.targets.conftest import Open

PICKY = """
class Picky(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x, ticket, scale=None, causal=False):
        B, T, C = x.shape
        if ticket.secret != 7:  # FAILS
            raise ValueError("no")
        q, k, v = self.qkv(x).view(B, T, 3, self.h, self.d_k).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)  # SCORES
        if causal:
            scores = scores + torch.full((T, T), -1e9).triu(1)
        weights = scores.softmax(-1)  # SOFTMAX
        context = torch.matmul(weights, v)  # VALUES
        return self.proj(context.transpose(1, 2).reshape(B, T, C))
"""


def line_of(text: str, part: str) -> int:
    """Return the line of `part` in the file that `opened` writes."""
    (found,) = [n for n, line in enumerate(text.splitlines(), 4) if part in line]
    return found


def failed(outcome: Subject | NotChecked) -> NotChecked:
    assert isinstance(outcome, NotChecked)
    return outcome


def test_lines_and_call_are_told(opened: Open) -> None:
    outcome = failed(opened(PICKY, "Picky", build="Picky(24, 4)"))
    at = [line_of(PICKY, part) for part in ("SCORES", "SOFTMAX", "VALUES", "FAILS")]
    assert outcome.reason.startswith("calling Picky(24, 4) with (torch.randn(")
    assert outcome.reason.endswith(
        f"; traced without a call, attention seems to stand at line {at[0]} (scores), line {at[1]}"
        f" (softmax), line {at[2]} (values); the call fails at line {at[3]}"
    )
    assert outcome.hint == (
        'pass --build "Picky(24, 4)" --call "x=torch.randn(2, 10, 24), ticket=..."'
    )


def test_the_hint_leads_to_a_checked_target(opened: Open) -> None:
    call = "x=torch.randn(2, 10, 24), ticket=SimpleNamespace(secret=7)"
    assert isinstance(opened(PICKY, "Picky", build="Picky(24, 4)", call=call), Subject)


def test_a_guessed_build_is_traced_too(opened: Open) -> None:
    outcome = failed(opened(PICKY, "Picky"))
    assert "attention seems to stand at line" in outcome.reason
    assert outcome.hint.startswith('pass --build "Picky(')


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return self.m(x, x, x)[0]", True),
        ("return F.scaled_dot_product_attention(x, x, x)", True),
        ("return (F.softmax(x @ x.mT, -1) @ x)", True),
        ("w = torch.einsum('bid,bjd->bij', x, x); return torch.bmm(w.softmax(2), x)", True),
        ("return self.m.out_proj(x).softmax(-1)", False),
        ("return self.m.out_proj(x) @ self.m.in_proj_weight.T", False),
    ],
)
def test_what_counts_as_attention(body: str, told: bool, opened: Open) -> None:
    source = f"""
class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.MultiheadAttention(24, 4)

    def forward(self, x, ticket):
        if ticket.secret != 7:
            raise ValueError("no")
        {body}
"""
    outcome = failed(opened(source, "A", build="A()"))
    where = f"attention seems to stand at line {line_of(source, body)}"
    assert (where in outcome.reason) == told
    assert ("traced" in outcome.reason) == told


def test_a_call_that_the_user_stated_is_not_second_guessed(opened: Open) -> None:
    call = "torch.randn(2, 10, 24), SimpleNamespace(secret=1)"
    outcome = failed(opened(PICKY, "Picky", build="Picky(24, 4)", call=call))
    assert outcome.reason.endswith("failed: ValueError: no")


def test_what_cannot_be_built_is_not_traced(opened: Open) -> None:
    source = PICKY.replace("super().__init__()", "raise OSError('no weights')")
    outcome = failed(opened(source, "Picky"))
    assert "building Picky(" in outcome.reason and "traced" not in outcome.reason


@pytest.mark.parametrize("body", ["raise KeyboardInterrupt('mine')", "import sys; sys.exit(3)"])
def test_whatever_tracing_raises_is_data(body: str, opened: Open) -> None:
    source = PICKY.replace("B, T, C = x.shape", body)
    assert "traced" not in failed(opened(source, "Picky", build="Picky(24, 4)")).reason


class Attention(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if mask.any():
            raise ValueError
        return (x @ x.mT).softmax(-1) @ x


class Endless(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while x.sum() != 1:
            x = x + 1
        return x


def test_conditions_on_values_are_tried_both_ways() -> None:
    found = traced(Attention())
    assert found is not None
    assert [stage.name for stage in found.sites[0]] == ["scores", "softmax", "values"]
    assert found.call == "x=..., mask=..."


# The limit may strike within a callback of a weak reference, where Python drops it: it strikes again.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_trace_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.2)
    assert traced(Endless()) is None


def test_nothing_of_a_trace_is_left_behind() -> None:
    before = nn.Module.__call__, nn.Module.__getattr__
    traced(Attention())
    assert (nn.Module.__call__, nn.Module.__getattr__) == before
    assert Attention()(torch.randn(2, 3, 4), torch.zeros(1)).shape == (2, 3, 4)
