"""MHA902's bound: legitimate half-precision code stays below it, lossy code does not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mha_lint.oracle.half import Draw, error_ratio, half_bound, plain_attention, precision_of

SHAPE = (2, 4, 8, 8)
HALVES = [torch.float16, torch.bfloat16]


def scale_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax((q * q.shape[-1] ** -0.5) @ k.mT, -1) @ v


def float_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return torch.softmax(scores.float(), -1).to(q.dtype) @ v


def normalised_last(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return (powers @ v) / powers.sum(-1, keepdim=True)


def rounded_weights(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
    return (weights * 64).round() / 64 @ v


def overflowing(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q * 200) @ (k * 200).mT
    return torch.softmax(scores * (q.shape[-1] ** -0.5 / 40000), -1) @ v


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("run", [plain_attention, scale_first, float_softmax, normalised_last])
def test_legitimate_code_stays_below(
    run: Callable[[Tensor, Tensor, Tensor], Tensor], dtype: torch.dtype
) -> None:
    found = half_bound(run, q_shape=SHAPE, k_shape=SHAPE, dtype=dtype)
    assert len(found.ratios) == 16
    assert found.ratio < 1.5
    assert not found.exceeded


@pytest.mark.parametrize("dtype", HALVES)
def test_lossy_code_exceeds_it(dtype: torch.dtype) -> None:
    found = half_bound(rounded_weights, q_shape=SHAPE, k_shape=SHAPE, dtype=dtype)
    assert found.exceeded
    assert found.error > 2 * found.plain_error


def test_overflow_exceeds_it() -> None:
    found = half_bound(overflowing, q_shape=SHAPE, k_shape=SHAPE, dtype=torch.float16)
    assert found.ratio == math.inf
    assert found.exceeded


def test_the_site_is_measured_with_its_own_scale_and_mask() -> None:
    hidden = torch.zeros(8, 8).masked_fill(torch.ones(8, 8).triu(1).bool(), -math.inf)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return plain_attention(q, k, v, scale=0.1, additive=hidden)

    right = half_bound(run, q_shape=SHAPE, k_shape=SHAPE, scale=0.1, additive=hidden)
    assert right.ratio == 1.0
    assert half_bound(run, q_shape=SHAPE, k_shape=SHAPE).exceeded


def test_draws_repeat() -> None:
    one = half_bound(scale_first, q_shape=SHAPE, k_shape=SHAPE)
    assert one.ratios == half_bound(scale_first, q_shape=SHAPE, k_shape=SHAPE).ratios
    assert one.ratios != half_bound(scale_first, q_shape=SHAPE, k_shape=SHAPE, seed=1).ratios


def test_other_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a context of \(2, 4, 8, 8\) is due"):
        half_bound(lambda q, _k, _v: q[:1], q_shape=SHAPE, k_shape=SHAPE)


def test_ratio_of_nothing_lost() -> None:
    assert error_ratio(0.0, 0.0) == 1.0
    assert error_ratio(1e-3, 0.0) == math.inf
    assert error_ratio(math.inf, math.inf) == 1.0
    assert error_ratio(3.0, 2.0) == 1.5


def drawn(number: int, dtype: torch.dtype, *shape: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for _ in range(3))
    return q, k, v


@pytest.mark.parametrize("dtype", HALVES)
def test_groups_with_their_own_scales(dtype: torch.dtype) -> None:
    scale = torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64)[:, None, None]
    draws = []
    for number in range(16):
        q, k, v = drawn(number, dtype, 3, 7, 6)
        context = torch.softmax((q @ k.mT).double() * scale, -1).to(dtype) @ v
        draws.append(Draw(q, k, v, context, scale))
    assert precision_of(draws).ratio < 1.5
    wrong = [Draw(d.q, d.k, d.v, d.context, scale * 1.5) for d in draws]
    assert precision_of(wrong).exceeded


def test_the_tolerance_is_twice_the_plain_error() -> None:
    found = half_bound(rounded_weights, q_shape=SHAPE, k_shape=SHAPE, dtype=torch.bfloat16)
    assert found.tolerance == 2 * found.plain_error < found.error
    right = half_bound(float_softmax, q_shape=SHAPE, k_shape=SHAPE, dtype=torch.bfloat16)
    assert right.error <= right.tolerance
