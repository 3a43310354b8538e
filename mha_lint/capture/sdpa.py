"""Scaled dot-product attention in plain operations.

`lowered` computes what ``torch.nn.functional.scaled_dot_product_attention`` documents, one
operation at a time, so that its scores, scale, mask and weights appear in a recording. Source: the
reference implementation in that function's documentation; rows without any permitted key give 0.
"""

from __future__ import annotations

import math

import torch

_HALF = (torch.float16, torch.bfloat16)


def safe_softmax(scores: torch.Tensor, *, dim: int) -> torch.Tensor:
    """Return the softmax of `scores` over `dim`; rows that are -inf throughout become 0."""
    return torch.ops.aten._safe_softmax.default(scores, dim)  # type: ignore[no-any-return]


def lowered(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute attention of `query` (..., h, T_q, d_k) to `key` and `value` (..., h_kv, T_k, d)."""
    native = query.dtype
    if native in _HALF:  # the fused kernels accumulate in float32
        query, key, value = query.float(), key.float(), value.float()
        if attn_mask is not None and attn_mask.dtype in _HALF:
            attn_mask = attn_mask.float()
    if enable_gqa and key.size(-3) != query.size(-3):
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
    if enable_gqa and value.size(-3) != query.size(-3):
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    factor = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if is_causal:
        t_q, t_k = query.size(-2), key.size(-2)
        keep = torch.ones(t_q, t_k, dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(keep.logical_not(), -math.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(attn_mask.logical_not(), -math.inf)
        else:
            scores = scores + attn_mask
    weights = torch.ops.aten._safe_softmax.default(scores, -1)
    if dropout_p > 0.0:
        weights = torch.dropout(weights, dropout_p, True)
    context = torch.matmul(weights, value)
    return context if native not in _HALF else context.to(native)
