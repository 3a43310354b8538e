"""Tensors of a module that calls write to, and the arguments that tell where."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.caching.arguments import Arguments
from mha_lint.facts.caching.slots import told_places, writes_to_itself

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

SLOTS = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.register_buffer("a", torch.zeros(2, num_heads, 12, d_model // num_heads))
        self.b = torch.zeros(2, num_heads, 12, d_model // num_heads)

    def forward(self, x, n):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        self.a[:B, :, n : n + T] = k
        self.b[:B, :, n : n + T] = v
        k, v = self.a[:B, :, : n + T], self.b[:B, :, : n + T]
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).reshape(B, T, C)
"""
CALL = "torch.randn(2, 5, 24), 0"
KEYS = "self.a[:B, :, n : n + T] = k"
VALUES = "self.b[:B, :, n : n + T] = v"
Of = Callable[["Case"], Arguments]


def test_an_argument_that_tells_where_to_write(measured: Measure, arguments: Of) -> None:
    case = measured(text=SLOTS, call=CALL)
    assert told_places(case.subject, arguments(case)) == {"n": (0, True)}
    assert writes_to_itself(case.subject) is True


def test_one_of_two_is_enough(measured: Measure, arguments: Of) -> None:
    case = measured((VALUES, "self.b[:B, :, :T] = v"), text=SLOTS, call=CALL)
    assert told_places(case.subject, arguments(case)) == {"n": (0, True)}


def test_a_default_that_is_left_out(measured: Measure, arguments: Of) -> None:
    case = measured(("x, n)", "x, n=0)"), text=SLOTS, call="torch.randn(2, 5, 24)")
    assert told_places(case.subject, arguments(case)) == {"n": (0, False)}


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ("self.a[:B, :, :T] = k", "self.b[:B, :, :T] = v"),  # always the first slots
        ("self.a[:B, :, n] = k[:, :, -1]", "self.b[:B, :, n] = v[:, :, -1]"),  # one of many layers
    ],
)
def test_what_tells_no_place(measured: Measure, arguments: Of, keys: str, values: str) -> None:
    read = ("k, v = self.a[:B, :, : n + T], self.b[:B, :, : n + T]", "pass")
    case = measured((KEYS, keys), (VALUES, values), read, text=SLOTS, call=CALL)
    assert told_places(case.subject, arguments(case)) == {}
    assert writes_to_itself(case.subject) is True


def test_statistics_hold_no_positions(measured: Measure) -> None:
    statistics = (
        (KEYS, "self.m.lerp_(x.mean((0, 1)), 0.1)"),
        (VALUES, "pass"),
        (
            "self.h = num_heads",
            'self.h = num_heads\n        self.register_buffer("m", torch.zeros(d_model))',
        ),
        ("k, v = self.a[:B, :, : n + T], self.b[:B, :, : n + T]", "x = x - self.m"),
    )
    case = measured(*statistics, text=SLOTS, call=CALL)
    assert writes_to_itself(case.subject) is False


def test_a_module_that_keeps_nothing(measured: Measure) -> None:
    assert writes_to_itself(measured().subject) is False
