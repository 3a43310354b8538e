"""Fused attention is recorded as plain operations that compute the same."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mha_lint.capture import CaptureError, Recording, Replay, record

Recorded = Callable[..., Recording]
B, H, TQ, TK, D = 2, 4, 5, 7, 8
MASKS: dict[str, Any] = {
    "none": None,
    "bool": torch.arange(TK) < torch.tensor([[3], [7], [1], [0], [5]]),
    "float": torch.linspace(-1, 1, TQ * TK).reshape(TQ, TK),
    "per head": torch.linspace(-2, 2, H * TQ * TK).reshape(1, H, TQ, TK),
}


@pytest.mark.parametrize(
    ("mask", "scale", "heads"), list(itertools.product(MASKS, [None, 0.3], [H, 2])), ids=str
)
def test_same_values(mask: str, scale: float | None, heads: int, recorded: Recorded) -> None:
    q, k, v = torch.randn(B, H, TQ, D), torch.randn(B, heads, TK, D), torch.randn(B, heads, TK, 6)
    options = {"attn_mask": MASKS[mask], "scale": scale, "enable_gqa": heads != H}

    def forward(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, **options)

    recording = recorded(forward, q, k, v)
    got = Replay(recording).base(recording.outputs[0])
    double = {k: v.double() if mask != "bool" and k == "attn_mask" and v is not None else v
              for k, v in options.items()}  # fmt: skip
    want = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), **double)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    if mask == "bool":
        assert not got[:, :, 3].any()  # a row without any permitted key


def test_nodes(recorded: Recorded) -> None:
    def forward(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.5)

    q, k, v = torch.randn(B, H, TQ, D), torch.randn(B, H, TQ, D), torch.randn(B, H, TQ, 6)
    recording = recorded(forward, q, k, v)
    calls = [n for n in recording.graph.nodes if n.op == "call_function"]
    assert [n.meta["op"] for n in calls] == [
        "transpose", "matmul", "mul", "ones", "tril", "logical_not", "masked_fill", "softmax",
        "dropout", "matmul",
    ]  # fmt: skip
    assert {n.meta["lowered"] for n in calls} == {"scaled_dot_product_attention"}
    line = forward.__code__.co_firstlineno + 1
    assert {n.meta["stack"][-1].span.line for n in calls} == {line}
    softmax, drop = calls[-3], calls[-2]
    assert softmax.kwargs == {"dim": -1}
    assert calls[2].args[1] == pytest.approx(1 / math.sqrt(D))
    assert drop.kwargs == {"p": 0.5, "training": True}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype, recorded: Recorded) -> None:
    q = torch.randn(B, H, TQ, D, dtype=dtype)
    recording = recorded(lambda q: F.scaled_dot_product_attention(q, q, q), q)
    assert recording.values[recording.outputs[0]].dtype == dtype
    scores = next(n for n in recording.graph.nodes if n.meta["op"] == "matmul")
    assert scores.meta["dtype"] == torch.float32


def test_a_wrong_call_fails_as_the_real_function_does() -> None:
    q, k = torch.randn(1, 1, 3, 4), torch.randn(1, 1, 3, 5)
    with pytest.raises(CaptureError, match="the call failed: RuntimeError") as caught:
        record(lambda q, k: F.scaled_dot_product_attention(q, k, k), (q, k), {})
    assert isinstance(caught.value.exception, RuntimeError)
    with pytest.raises(RuntimeError) as real:
        F.scaled_dot_product_attention(q, k, k)
    assert str(caught.value.exception) == str(real.value)


@pytest.mark.filterwarnings("ignore")
def test_flex_attention(recorded: Recorded) -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    bias = torch.randn(H)

    def forward(q: Any, k: Any, v: Any) -> Any:
        mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, TQ, TK, device="cpu")
        return flex.flex_attention(
            q, k, v, lambda s, b, h, i, j: s + bias[h] * (i - j), mask, enable_gqa=True
        )

    q, k, v = torch.randn(B, H, TQ, 16), torch.randn(B, 2, TK, 16), torch.randn(B, 2, TK, 16)
    recording = recorded(forward, q, k, v)
    softmax = next(n for n in recording.graph.nodes if n.meta["op"] == "softmax")
    assert softmax.meta["lowered"] == "flex_attention"
    weights = Replay(recording).base(softmax)
    k = k.repeat_interleave(2, 1)
    away = torch.arange(TQ)[:, None] - torch.arange(TK)
    scores = q.double() @ k.double().mT / 4 + bias.double()[:, None, None] * away
    want = scores.masked_fill(away < 0, -math.inf).softmax(-1)
    torch.testing.assert_close(weights, want, rtol=1e-6, atol=1e-6)


def test_inside_vmap_it_is_plain_too(recorded: Recorded) -> None:
    def forward(q: Any) -> Any:
        return torch.vmap(lambda x: F.scaled_dot_product_attention(x, x, x))(q)

    recording = recorded(forward, torch.randn(3, H, TQ, D))
    names = [n.meta["op"] for n in recording.graph.nodes]
    assert names.count("softmax") == 1
    assert names.count("bmm") == 2
