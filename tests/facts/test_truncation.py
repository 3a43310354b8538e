"""Widths that the head count does not divide, and where they are rounded down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mha_lint.model.facts import Truncation

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

FLOOR = "self.d_k = d_model // num_heads"


def test_a_floor_division_that_loses_channels(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.q_proj = nn.Linear(d_model, d_model)", "inner = self.h * self.d_k\n        self.q_proj = nn.Linear(d_model, inner)"),
        ("self.k_proj = nn.Linear(d_model, d_model)", "self.k_proj = nn.Linear(d_model, inner)"),
        ("self.v_proj = nn.Linear(d_model, d_model)", "self.v_proj = nn.Linear(d_model, inner)"),
        ("self.out_proj = nn.Linear(d_model, d_model)", "self.out_proj = nn.Linear(inner, d_model)"),
        ("reshape(B, T, C)", "flatten(2)"),
        build="MHA(26, 4)",
        call="torch.randn(2, 5, 26)",
    )  # fmt: skip
    found = known(case.facts.truncation)
    assert found == Truncation(26, 4, 24, 2, (1, 2, 13, 26), "floor division", found.span)
    assert case.marked(found.span) == "d_model // num_heads"
    assert case.facts.truncation.evidence == (  # type: ignore[union-attr]
        "W_q maps 26 channels to 24 = 4 * (26 // 4)"
    )


def test_an_own_head_width_loses_nothing(measured: Measure, known: Known) -> None:
    case = measured(
        ("def __init__(self, d_model, num_heads):", "def __init__(self, d_model, num_heads, head_dim):"),
        (FLOOR, "self.d_k = head_dim"),
        ("self.q_proj = nn.Linear(d_model, d_model)", "inner = self.h * self.d_k\n        self.q_proj = nn.Linear(d_model, inner)"),
        ("self.k_proj = nn.Linear(d_model, d_model)", "self.k_proj = nn.Linear(d_model, inner)"),
        ("self.v_proj = nn.Linear(d_model, d_model)", "self.v_proj = nn.Linear(d_model, inner)"),
        ("self.out_proj = nn.Linear(d_model, d_model)", "self.out_proj = nn.Linear(inner, d_model)"),
        ("reshape(B, T, C)", "flatten(2)"),
        build="MHA(26, 4, 6)",
        call="torch.randn(2, 5, 26)",
    )  # fmt: skip
    assert known(case.facts.truncation) is None


def test_chunks_of_unequal_width(measured: Measure, known: Known) -> None:
    text = """\
class Chunked(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        qs = torch.chunk(self.q_proj(x), self.h, dim=-1)
        ks = torch.chunk(self.k_proj(x), self.h, dim=-1)
        vs = torch.chunk(self.v_proj(x), self.h, dim=-1)
        out = [F.softmax(q @ k.mT / math.sqrt(q.size(-1)), -1) @ v for q, k, v in zip(qs, ks, vs)]
        return self.out_proj(torch.cat(out, -1))
"""
    case = measured(text=text, build="Chunked(26, 4)", call="torch.randn(2, 5, 26)")
    found = known(case.facts.truncation)
    assert (found.width, found.num_heads, found.remainder) == (26, 4, 2)
    assert (found.valid, found.how) == ((1, 2, 13, 26), "7, 7, 7, 5 channels wide")
    assert case.marked(found.span) == "torch.chunk(self.q_proj(x), self.h, dim=-1)"
    even = measured(text=text, build="Chunked(24, 4)", call="torch.randn(2, 5, 24)")
    assert known(even.facts.truncation) is None


def test_a_width_that_divides(measured: Measure, known: Known) -> None:
    assert known(measured().facts.truncation) is None


SPLIT_OUTSIDE = """\
class Head(nn.Module):
    def __init__(self, d_model, size):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(d_model, size) for _ in range(3))

    def forward(self, x):
        q, k, v = (layer(x) for layer in self.maps)
        return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1) @ v


class Block(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        narrow = d_model // 3
        size = d_model // num_heads
        self.heads = nn.ModuleList(Head(d_model, size) for _ in range(num_heads))
        self.out_proj = nn.Linear(num_heads * size, d_model)
        self.up, self.down = nn.Linear(d_model, narrow), nn.Linear(narrow, d_model)

    def forward(self, x):
        x = x + self.out_proj(torch.cat([head(x) for head in self.heads], -1))
        return x + self.down(F.gelu(self.up(x)))
"""


def test_the_rounding_in_a_class_around_the_heads(measured: Measure, known: Known) -> None:
    case = measured(text=SPLIT_OUTSIDE, build="Block(26, 4)", call="torch.randn(2, 5, 26)")
    found = known(case.facts.truncation)
    assert (found.width, found.num_heads, found.kept) == (26, 4, 24)
    assert case.marked(found.span) == "d_model // num_heads"


def test_a_split_by_size_asked_for_as_many_heads_as_fit(measured: Measure, known: Known) -> None:
    text = """\
class Pieces(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.size = d_model // num_heads
        self.maps = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(3))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        qs, ks, vs = (layer(x).split(self.size, -1) for layer in self.maps)
        out = [F.softmax(q @ k.mT / math.sqrt(q.size(-1)), -1) @ v for q, k, v in zip(qs, ks, vs)]
        return self.out_proj(torch.cat(out, -1))
"""
    case = measured(text=text, build="Pieces(26, 4)", call="torch.randn(2, 5, 26)")
    found = known(case.facts.truncation)
    assert (found.width, found.num_heads, found.remainder) == (26, 4, 2)
    assert found.how == "6, 6, 6, 6, 2 channels wide"
