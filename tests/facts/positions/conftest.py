"""A right rotary module as text, and rotations made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from mha_lint.facts.positions.pairs import Turned

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

ROTARY = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.d_k = d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.register_buffer("speed", 100.0 ** (-torch.arange(0, self.d_k, 2) / self.d_k))

    def rotate(self, x):
        place = torch.arange(x.shape[-2])
        angle = place[:, None] * self.speed
        angle = torch.cat((angle, angle), dim=-1)
        low, high = x.chunk(2, dim=-1)
        other = torch.cat((-high, low), dim=-1)
        return x * angle.cos() + other * angle.sin()

    def forward(self, x):
        B, T, C = x.shape
        q = self.q_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        q, k = self.rotate(q), self.rotate(k)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        context = scores.softmax(dim=-1) @ v
        return self.out_proj(context.transpose(1, 2).reshape(B, T, C))
"""
"""B 2, T 5, h 4, d_k 6: three pairs of halves, turned by 1, 100 ** -1/3 and 100 ** -2/3 a step."""


@pytest.fixture
def rotary(measured: Measure) -> Callable[..., Case]:
    """Return a function that records the rotary module, edited."""

    def run(*edits: tuple[str, str], call: str = "torch.randn(2, 5, 24)") -> Case:
        return measured(*edits, text=ROTARY, call=call)

    return run


def turned(
    angles: Tensor, others: Tensor | None = None, *, positions: list[int] | None = None
) -> Turned:
    """Return rotations of pairs of halves by `angles` (R, F/2) in one group.

    `others`: the angles of the second half of the features, where they differ.
    """
    second = angles if others is None else others
    count = angles.shape[1]
    one = torch.cat((angles.cos(), second.sin()), -1)[None]
    two = torch.cat((-angles.sin(), second.cos()), -1)[None]
    low = torch.arange(count).repeat(2)[None]
    return Turned(
        turns=(),
        samples=torch.zeros(1, dtype=torch.long),
        heads=torch.zeros(1, dtype=torch.long),
        positions=torch.tensor([positions or list(range(len(angles)))]),
        one=one,
        two=two,
        low=low,
        high=low + count,
        partner=torch.cat((torch.arange(count) + count, torch.arange(count)))[None],
        shared=torch.ones(1, 2 * count, dtype=torch.long),
        whole=True,
    )


def steps(count: int, *speeds: float) -> Tensor:
    """Return the angles (R, F/2) of `count` positions at these speeds."""
    return torch.arange(count, dtype=torch.float64)[:, None] * torch.tensor(speeds).double()
