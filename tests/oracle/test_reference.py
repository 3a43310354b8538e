"""The reference attention against PyTorch's own in float64, and against the formula by hand."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_lint.oracle.reference import (
    attention,
    attention_stages,
    causal_hidden,
    merge_heads,
    multi_head,
    softmax,
    split_heads,
)

EXACT = 1e-12


def randn(*shape: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def largest(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item()


@pytest.mark.parametrize("scale", [None, 1.0, 0.37])
@pytest.mark.parametrize("kv_heads", [6, 3, 1])
@pytest.mark.parametrize("mask", ["none", "bool", "float", "causal"])
def test_agrees_with_sdpa(mask: str, kv_heads: int, scale: float | None) -> None:
    q, k, v = randn(2, 6, 7, 4), randn(2, kv_heads, 7, 4, seed=1), randn(2, kv_heads, 7, 3, seed=2)
    keep = randn(2, 1, 7, 7, seed=3) > -0.5
    keep[..., 0] = True
    bias = randn(2, 6, 7, 7, seed=4)
    given: Tensor | None = {"bool": keep, "float": bias}.get(mask)
    due = F.scaled_dot_product_attention(
        q, k, v, attn_mask=given, is_causal=mask == "causal", scale=scale, enable_gqa=True
    )
    hidden = torch.zeros(keep.shape, dtype=torch.float64).masked_fill(~keep, -math.inf)
    additive = {"bool": hidden, "float": bias}.get(mask)
    found = attention(q, k, v, scale=scale, additive=additive, causal=mask == "causal")
    assert found.shape == (2, 6, 7, 3)
    assert largest(found, due) < EXACT


@pytest.mark.parametrize("bias", [True, False])
def test_agrees_with_multihead_attention(bias: bool) -> None:
    torch.manual_seed(0)
    mha = nn.MultiheadAttention(12, 3, bias=bias, batch_first=True, dtype=torch.float64).eval()
    if bias:
        nn.init.normal_(mha.in_proj_bias)
        nn.init.normal_(mha.out_proj.bias)
    x, memory = randn(2, 5, 12), randn(2, 8, 12, seed=1)
    w_q, w_k, w_v = mha.in_proj_weight.detach().chunk(3)
    b_q, b_k, b_v = mha.in_proj_bias.detach().chunk(3) if bias else (None, None, None)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        due = mha(x, memory, memory)[0]
    found = multi_head(
        x,
        memory,
        memory,
        w_q,
        w_k,
        w_v,
        mha.out_proj.weight.detach(),
        num_heads=3,
        b_q=b_q,
        b_k=b_k,
        b_v=b_v,
        b_o=mha.out_proj.bias.detach() if bias else None,
    )
    assert largest(found, due) < EXACT


def test_one_head_is_the_formula_written_out() -> None:
    q, k, v = randn(1, 1, 2, 3), randn(1, 1, 4, 3, seed=1), randn(1, 1, 4, 5, seed=2)
    for i in range(2):
        scores = [sum(q[0, 0, i, c] * k[0, 0, j, c] for c in range(3)) / 3**0.5 for j in range(4)]
        powers = [math.exp(float(s)) for s in scores]
        row = sum(p / sum(powers) * v[0, 0, j] for j, p in enumerate(powers))
        assert largest(attention(q, k, v)[0, 0, i], torch.as_tensor(row)) < EXACT


def test_query_head_i_meets_key_head_i_over_group() -> None:
    q, k, v = randn(1, 4, 3, 2), randn(1, 2, 3, 2, seed=1), randn(1, 2, 3, 2, seed=2)
    found = attention(q, k, v)
    for head, kv in ((0, 0), (1, 0), (2, 1), (3, 1)):
        alone = attention(q[:, head : head + 1], k[:, kv : kv + 1], v[:, kv : kv + 1])
        assert largest(found[:, head], alone[:, 0]) < EXACT


def test_fully_hidden_row_gets_weights_of_zero() -> None:
    q, k, v = randn(1, 1, 2, 3), randn(1, 1, 4, 3, seed=1), randn(1, 1, 4, 3, seed=2)
    additive = torch.zeros(2, 4, dtype=torch.float64)
    additive[0] = -math.inf
    stages = attention_stages(q, k, v, additive=additive)
    assert stages.weights[0, 0, 0].tolist() == [0.0] * 4
    assert stages.context[0, 0, 0].tolist() == [0.0] * 3
    assert abs(stages.weights[0, 0, 1].sum().item() - 1) < EXACT


def test_softmax_survives_large_scores_and_many_axes() -> None:
    x = torch.tensor([[1000.0, 1000.0], [-1000.0, 0.0]], dtype=torch.float64)
    assert softmax(x)[0].tolist() == [0.5, 0.5]
    y = randn(3, 4, 5)
    assert largest(softmax(y, (0, 2)).sum((0, 2)), torch.ones(4, dtype=torch.float64)) < EXACT
    flat = torch.softmax(y.permute(1, 0, 2).flatten(1), -1)
    assert largest(softmax(y, (0, 2)).permute(1, 0, 2).flatten(1), flat) < EXACT


def test_softcap_squashes_before_the_mask() -> None:
    q, k, v = randn(1, 1, 2, 3) * 9, randn(1, 1, 4, 3, seed=1) * 9, randn(1, 1, 4, 3, seed=2)
    stages = attention_stages(q, k, v, causal=True, softcap=2.0)
    assert stages.logits[torch.isfinite(stages.logits)].abs().max() <= 2.0
    assert stages.weights[0, 0, 0].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_causal_shift_aligns_the_last_query_with_the_last_key() -> None:
    assert causal_hidden(2, 4, shift=2).tolist() == [
        [False, False, False, True],
        [False, False, False, False],
    ]
    assert causal_hidden(2, 3).tolist() == [[False, True, True], [False, False, True]]


def test_split_and_merge_are_inverse_and_heads_are_consecutive_channels() -> None:
    x = torch.arange(2 * 3 * 8, dtype=torch.float64).view(2, 3, 8)
    heads = split_heads(x, 4)
    assert heads[1, 2, 0].tolist() == x[1, 0, 4:6].tolist()
    assert torch.equal(merge_heads(heads), x)


def test_half_inputs_are_computed_in_float64() -> None:
    q = randn(1, 1, 2, 3).half()
    assert attention(q, q, q).dtype == torch.float64


def test_shapes_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="2 key/value heads do not divide 3 query heads"):
        attention(randn(1, 3, 2, 2), randn(1, 2, 2, 2), randn(1, 2, 2, 2))
    with pytest.raises(ValueError, match="do not belong together"):
        attention(randn(1, 2, 2, 3), randn(1, 2, 2, 2), randn(1, 2, 2, 2))
    with pytest.raises(ValueError, match="4 heads do not divide 10 channels"):
        split_heads(randn(1, 2, 10), 4)
