"""A site made to order: attention computed step by step, right or with chosen faults.

Written without the oracle's own code, so that a test compares two independent computations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from mha_lint.oracle import Operand, SiteData, named_scales

Split = Callable[[Tensor, int], Tensor]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@dataclass(frozen=True)
class Size:
    """Sizes of one synthetic subject: at `FIRST` and `SECOND` no two readings coincide."""

    batch: int = 3
    t_q: int = 7
    t_k: int = 7
    heads: int = 5
    kv_heads: int = 5
    head_dim: int = 6
    seed: int = 0

    @property
    def d_model(self) -> int:
        return self.heads * self.head_dim


FIRST = Size()
SECOND = Size(t_q=11, t_k=11, heads=2, kv_heads=2, seed=1)
CROSS_FIRST = Size(t_q=7, t_k=11)
CROSS_SECOND = Size(t_q=11, t_k=5, heads=2, kv_heads=2, seed=1)


def split_right(z: Tensor, d: int) -> Tensor:
    b, t, c = z.shape
    return z.view(b, t, c // d, d).transpose(1, 2)


def split_view(z: Tensor, d: int) -> Tensor:
    b, t, c = z.shape
    return z.reshape(b, c // d, t, d)


def split_heads_as_rows(z: Tensor, d: int) -> Tensor:
    b, t, c = z.shape
    return z.view(b, t, c // d, d)


def split_samples_as_rows(z: Tensor, d: int) -> Tensor:
    b, t, c = z.shape
    return z.view(b, t, c // d, d).permute(1, 2, 0, 3)


def split_interleaved(z: Tensor, d: int) -> Tensor:
    b, t, c = z.shape
    return z.view(b, t, d, c // d).permute(0, 3, 1, 2)


def split_heads_first(z: Tensor, d: int) -> Tensor:
    return split_right(z, d).transpose(0, 1)


def split_channels_first(z: Tensor, d: int) -> Tensor:
    b, t, c = z.shape
    return z.transpose(1, 2).reshape(b, c // d, t, d)


def merge_right(y: Tensor) -> Tensor:
    n, h, t, d = y.shape
    return y.transpose(1, 2).reshape(n, t, h * d)


def softmax_over(*axes: int) -> Callable[[Tensor], Tensor]:
    def weigh(x: Tensor) -> Tensor:
        if len(axes) == 1:
            return x.softmax(axes[0])
        e = (x - x.amax(axes, keepdim=True)).exp()
        return e / e.sum(axes, keepdim=True)

    return weigh


@dataclass(frozen=True)
class Make:
    """What one synthetic site does at each step; the defaults are the definition."""

    split_q: Split = split_right
    split_k: Split = split_right
    split_v: Split = split_right
    scale: Callable[[Size], float] = lambda size: size.head_dim**-0.5
    gain_q: Callable[[Size], float] = lambda _: 1.0
    bias: Callable[[Tensor], Tensor] | None = None
    weigh: Callable[[Tensor], Tensor] = lambda x: x.softmax(-1)
    after: Callable[[Size], float] = lambda _: 1.0
    context: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda w, _k, v: w @ v
    merge: Callable[[Tensor], Tensor] = merge_right
    project: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda m, w, b: m @ w.T + b
    adjust: Callable[[Tensor], Tensor] | None = None
    due: bool = True


def make_site(size: Size = FIRST, make: Make | None = None) -> SiteData:
    """Return the data of one site; q, k, v are split to (n, h, T, d), all else follows on 4-D."""
    make = make or Make()
    g = torch.Generator().manual_seed(size.seed)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    d, width = size.head_dim, size.d_model
    kv_width = size.kv_heads * d
    x, memory = randn(size.batch, size.t_q, width), randn(size.batch, size.t_k, width)
    q0 = x @ randn(width, width) / math.sqrt(width)
    k0 = memory @ randn(width, kv_width) / math.sqrt(width)
    v0 = memory @ randn(width, kv_width) / math.sqrt(width)
    q = make.split_q(q0, d) * make.gain_q(size)
    k, v = make.split_k(k0, d), make.split_v(v0, d)
    if size.kv_heads != size.heads:
        k = k.repeat_interleave(size.heads // size.kv_heads, dim=1)
        v = v.repeat_interleave(size.heads // size.kv_heads, dim=1)
    raw = q @ k.transpose(-1, -2)
    plain = raw * make.scale(size)
    logits = plain if make.bias is None else make.bias(plain)
    additive = None if make.bias is None else make.bias(torch.zeros_like(plain))
    if make.adjust is not None:
        logits = make.adjust(logits)
    weights = make.weigh(logits) * make.after(size)
    context = make.context(weights, k, v)
    merged = make.merge(context).reshape(size.batch, -1, width)
    w_o, b_o = randn(width, width) / math.sqrt(width), randn(width)
    return SiteData(
        q=Operand(q.flatten(0, 1), q0),
        k=Operand(k.flatten(0, 1), k0),
        v=Operand(v.flatten(0, 1), v0),
        heads=size.heads,
        kv_heads=size.kv_heads,
        batch=size.batch,
        head_dim=d,
        d_model=width,
        raw=raw.flatten(0, 1),
        logits=logits.flatten(0, 1),
        additive=None if additive is None else additive.flatten(0, 1),
        weights=weights.flatten(0, 1),
        context=context.flatten(0, 1),
        merged=merged,
        output_weight=w_o,
        output_bias=b_o,
        output=make.project(merged, w_o, b_o),
        named_scales=named_scales(head_dim=d, d_model=width, num_heads=size.heads, t_k=size.t_k),
        expected_scale=d**-0.5 if make.due else None,
    )
