"""Where a mask fails to be handed on."""

from __future__ import annotations

import pytest

from tests.facts.conftest import Measure
from tests.facts.masks.test_ignored import ignored

CALL = "torch.randn(2, 5, 24), torch.arange(5)[None] < torch.tensor([[5], [3]])"
IDS = "torch.tensor([[4, 5, 6, 7, 8], [4, 5, 6, 0, 0]])"
LAYERS = """\
class Inner(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        bias = None
        if mask is not None:
            bias = mask[:, None, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class Middle(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.inner = Inner(d_model, num_heads)

    def forward(self, x, mask=None):
        return x + self.inner(x, mask)


class Outer(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.middle = Middle(d_model, num_heads)

    def forward(self, x, keep):
        return self.middle(x, mask=keep)
"""
OF_IDS = (
    ("self.middle = Middle", "self.embed = nn.Embedding(9, d_model)\n        self.middle = Middle"),
    ("forward(self, x, keep)", "forward(self, ids)"),
)
BOUND = "        real = ids != 0\n        return self.middle(self.embed(ids), real)"
DROPPED = ("self.inner(x, mask)", "self.inner(x)")


def test_a_mask_that_arrives(measured: Measure) -> None:
    assert ignored(measured(text=LAYERS, build="Outer(24, 4)", call=CALL)) == ()


@pytest.mark.parametrize(
    ("edits", "call", "line"),
    [
        ((DROPPED,), CALL, "self.inner(x)"),
        ((DROPPED, *OF_IDS, ("(x, mask=keep)", "(self.embed(ids), mask=ids != 0)")), IDS, "self.inner(x)"),
        (
            (DROPPED, *OF_IDS, ("        return self.middle(x, mask=keep)", BOUND)), IDS, "self.inner(x)",
        ),
        ((("mask=keep", ""),), CALL, "self.middle(x, )"),
        ((("if mask is not None:", "if mask is not None and mask.dim() == 4:"),), CALL, "if mask"),
    ],
)  # fmt: skip
def test_the_line_that_does_not_hand_it_on(
    edits: tuple[tuple[str, str], ...], call: str, line: str, measured: Measure
) -> None:
    case = measured(*edits, text=LAYERS, build="Outer(24, 4)", call=call)
    (one,) = ignored(case)
    assert one.span is not None and one.span.line == case.line(line)
