"""Multi-head attention in plain float64, written to be read against the paper.

Vaswani et al., "Attention Is All You Need" (2017), section 3.2: Attention(Q, K, V) =
softmax(Q K^T / sqrt(d_k)) V, formula (1), and MultiHead(Q, K, V) = Concat(head_1 ... head_h) W_O.
No fused kernel, no broadcasting trick: each line is one step of the definition. Grouped keys and
values follow Ainslie et al., "GQA" (2023): query head i meets key/value head i // (h / h_kv).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Stages(NamedTuple):
    """Every intermediate of one attention.

    ``scores``: (B, h, T_q, T_k) q.k; ``logits``: (B, h, T_q, T_k) scaled, capped, biased and
    masked; ``weights``: (B, h, T_q, T_k); ``context``: (B, h, T_q, d_v).
    """

    scores: Tensor
    logits: Tensor
    weights: Tensor
    context: Tensor


def softmax(logits: Tensor, axes: tuple[int, ...] = (-1,)) -> Tensor:
    """Normalise over `axes` together: exp(x) / sum(exp(x)), the maximum subtracted before.

    A slice that is -inf throughout (nothing left to attend to) gets weights of zero.
    """
    largest = logits.amax(axes, keepdim=True)
    largest = torch.where(torch.isneginf(largest), 0.0, largest)
    exponentials = torch.exp(logits - largest)
    total = exponentials.sum(axes, keepdim=True)
    return exponentials / torch.where(total == 0, 1.0, total)


def causal_hidden(
    t_q: int, t_k: int, *, shift: int = 0, device: torch.device | str = "cpu"
) -> Tensor:
    """Return (T_q, T_k) bool, True where query i must not see key j: j > i + shift.

    ``shift`` = T_k - T_q aligns the last query with the last key, as decoding with a cache needs.
    """
    rows = torch.arange(t_q, device=device)[:, None]
    columns = torch.arange(t_k, device=device)[None, :]
    return columns > rows + shift


def attention_stages(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | Tensor | None = None,
    additive: Tensor | None = None,
    causal: bool = False,
    causal_shift: int = 0,
    softcap: float | None = None,
) -> Stages:
    """Return all stages for q (B, h, T_q, d), k (B, h_kv, T_k, d) and v (B, h_kv, T_k, d_v).

    ``scale``: None for 1/sqrt(d); ``additive``: bias and mask, broadcastable to (B, h, T_q, T_k),
    -inf hides. ``softcap`` c squashes scaled scores to c * tanh(x / c) before anything is added.
    Raises ValueError when the shapes do not belong together.
    """
    q, k, v = q.double(), k.double(), v.double()
    heads, kv_heads = q.shape[1], k.shape[1]
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"{kv_heads} key/value heads do not divide {heads} query heads")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2] or v.shape[1] != kv_heads:
        raise ValueError(
            f"shapes do not belong together: {tuple(q.shape)} {tuple(k.shape)} {tuple(v.shape)}"
        )
    k = k.repeat_interleave(heads // kv_heads, dim=1)
    v = v.repeat_interleave(heads // kv_heads, dim=1)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k)
    logits = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if additive is not None:
        logits = logits + additive.double()
    if causal:
        hidden = causal_hidden(q.shape[-2], k.shape[-2], shift=causal_shift, device=q.device)
        logits = logits.masked_fill(hidden, float("-inf"))
    weights = softmax(logits)
    return Stages(scores, logits, weights, torch.einsum("bhqk,bhkd->bhqd", weights, v))


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | Tensor | None = None,
    additive: Tensor | None = None,
    causal: bool = False,
    causal_shift: int = 0,
    softcap: float | None = None,
) -> Tensor:
    """Return the context (B, h, T_q, d_v); the arguments are those of `attention_stages`."""
    return attention_stages(
        q,
        k,
        v,
        scale=scale,
        additive=additive,
        causal=causal,
        causal_shift=causal_shift,
        softcap=softcap,
    ).context


def split_heads(projected: Tensor, heads: int) -> Tensor:
    """Return (B, T, h * d) as (B, h, T, d): head i takes channels i * d to (i + 1) * d."""
    samples, positions, width = projected.shape
    if width % heads:
        raise ValueError(f"{heads} heads do not divide {width} channels")
    return projected.reshape(samples, positions, heads, width // heads).permute(0, 2, 1, 3)


def merge_heads(context: Tensor) -> Tensor:
    """Return (B, h, T, d) as (B, T, h * d), the heads side by side."""
    samples, heads, positions, width = context.shape
    return context.permute(0, 2, 1, 3).reshape(samples, positions, heads * width)


def multi_head(
    x_q: Tensor,
    x_k: Tensor,
    x_v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor | None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    b_q: Tensor | None = None,
    b_k: Tensor | None = None,
    b_v: Tensor | None = None,
    b_o: Tensor | None = None,
    scale: float | Tensor | None = None,
    additive: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Return MultiHead(x_q, x_k, x_v) of inputs (B, T_q, C_q), (B, T_k, C_k), (B, T_k, C_v).

    Weights are (out, in) as nn.Linear holds them: w_q (h * d, C_q), w_k (h_kv * d, C_k), w_v
    (h_kv * d_v, C_v), w_o (D_out, h * d_v) or None for the concatenated heads themselves.
    Raises ValueError when a width is no multiple of its head count.
    """
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    context = attention(
        split_heads(linear(x_q, w_q, b_q), num_heads),
        split_heads(linear(x_k, w_k, b_k), kv_heads),
        split_heads(linear(x_v, w_v, b_v), kv_heads),
        scale=scale,
        additive=additive,
        causal=causal,
    )
    merged = merge_heads(context)
    return merged if w_o is None else linear(merged, w_o, b_o)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x (..., C) times weight (D, C) transposed, plus bias (D,), in float64."""
    y = torch.einsum("...c,dc->...d", x.double(), weight.double())
    return y if bias is None else y + bias.double()
