"""torch's flex_attention in plain operations.

The operator is handed Python functions that change and mask one score; here they are called once on
all scores with indices that broadcast, which is what its own vmap comes to. Source: the description
of ``torch.nn.attention.flex_attention.flex_attention``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

_LN2 = math.log(2.0)


def lowered(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable[..., torch.Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: Mapping[str, Any],
    score_mod_other_buffers: tuple[Any, ...] = (),
    mask_mod_other_buffers: tuple[Any, ...] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the context, and the log-sum-exp and maximum of the scores in units of log 2.

    `query` is (B, h, T_q, d_k), `key` (B, h_kv, T_k, d_k), `value` (B, h_kv, T_k, v_dim). The last
    item of `block_mask` is the function that masks.
    """
    native = query.dtype
    if key.size(1) != query.size(1):
        times = query.size(1) // key.size(1)
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    if native in (torch.float16, torch.bfloat16):
        query, key = query.float(), key.float()
    scores = torch.matmul(query, key.transpose(-2, -1)) * scale
    place = [
        torch.arange(n, device=scores.device).view([-1 if i == axis else 1 for i in range(4)])
        for axis, n in enumerate(scores.shape)
    ]
    mask = block_mask[-1](*place, *mask_mod_other_buffers)
    scores = score_mod(scores, *place, *score_mod_other_buffers)
    if mask.numel() > 1 or not bool(mask):  # a single True masks nothing
        scores = torch.where(mask, scores, -math.inf)
    weights = torch.ops.aten._safe_softmax.default(scores, -1)
    context = torch.matmul(weights if weights.dtype == native else weights.to(native), value)
    none = torch.zeros(0)
    lse = scores.logsumexp(-1) / _LN2 if kernel_options.get("OUTPUT_LOGSUMEXP") else none
    largest = scores.amax(-1) / _LN2 if kernel_options.get("OUTPUT_MAX") else none
    return context, lse, largest
