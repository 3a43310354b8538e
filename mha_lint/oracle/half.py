"""Whether half precision loses more than it must (MHA902).

FlashAttention's rule: the error against the float64 reference is at most twice that of a
straightforward implementation in the same dtype (Dao et al., 2022, and its test suite). A single
draw breaks that now and then for legitimate code, so the rule is applied to the median over 16
draws of the ratio of rms errors: legitimate variants reach 1.25, a lossy one a multiple of it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.oracle.reference import attention

DRAWS = 16
ALLOWED = 2.0

Run = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Precision:
    """The outcome: ``ratio``, the median of ``ratios``, against ``allowed``.

    ``error`` and ``plain_error``: medians of the rms errors against float64.
    """

    ratio: float
    ratios: tuple[float, ...]
    error: float
    plain_error: float
    allowed: float = ALLOWED

    @property
    def exceeded(self) -> bool:
        """Return whether more is lost than a straightforward implementation loses, twice over."""
        return not self.ratio <= self.allowed

    @property
    def tolerance(self) -> float:
        """Return the rms error up to which nothing is lost but what the dtype cannot hold."""
        return self.allowed * self.plain_error


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Operands of one attention, and what the code under test made of them.

    ``q``: (..., h, T_q, d), ``k``: (..., h, T_k, d) and ``v``: (..., h, T_k, d_v), all of the dtype
    under test; at most four axes. ``context``: (..., h, T_q, d_v), in any floating dtype.
    ``scale`` (None: 1/sqrt(d)) and ``additive`` are those of the code, in any dtype.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    context: Tensor
    scale: float | Tensor | None = None
    additive: Tensor | None = None


def plain_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | Tensor | None = None,
    additive: Tensor | None = None,
) -> Tensor:
    """Return straightforward attention of (..., T, d) tensors, every step in their own dtype."""
    if isinstance(scale, Tensor):
        scale = scale.to(q.dtype)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if additive is not None:
        scores = scores + additive.to(scores.dtype)
    return torch.softmax(scores, -1) @ v


def half_bound(
    run: Run,
    *,
    q_shape: tuple[int, int, int, int],
    k_shape: tuple[int, int, int, int],
    v_dim: int | None = None,
    dtype: torch.dtype = torch.float16,
    device: torch.device | str = "cpu",
    scale: float | None = None,
    additive: Tensor | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Precision:
    """Return how much `run` loses on operands N(0, 1) of `dtype`.

    ``run`` maps q (B, h, T_q, d), k (B, h, T_k, d) and v (B, h, T_k, d_v) of `dtype` to the
    context (B, h, T_q, d_v). ``scale`` and ``additive`` are those of the site: what is compared is
    precision, not meaning. Raises ValueError when `run` returns another shape.
    """

    def drawn() -> Iterator[Draw]:
        for draw in range(draws):
            generator = torch.Generator().manual_seed(seed * 1000 + draw)
            shapes = (q_shape, k_shape, (*k_shape[:3], v_dim or k_shape[3]))
            q, k, v = (torch.randn(s, generator=generator).to(device, dtype) for s in shapes)
            yield Draw(q, k, v, run(q, k, v), scale, additive)

    return precision_of(drawn())


def precision_of(draws: Iterable[Draw]) -> Precision:
    """Return how much was lost in `draws`, beside a straightforward implementation.

    Raises ValueError when a context has another shape than its operands ask for.
    """
    found, plain, ratios = [], [], []
    for draw in draws:
        exact = exact_attention(draw)
        if draw.context.shape != exact.shape:
            due, own = tuple(exact.shape), tuple(draw.context.shape)
            raise ValueError(f"a context of {due} is due, not {own}")
        straight = plain_attention(draw.q, draw.k, draw.v, scale=draw.scale, additive=draw.additive)
        found.append(rms_error(draw.context, exact))
        plain.append(rms_error(straight, exact))
        ratios.append(error_ratio(found[-1], plain[-1]))
    return Precision(
        ratio=statistics.median(ratios),
        ratios=tuple(ratios),
        error=statistics.median(found),
        plain_error=statistics.median(plain),
    )


def exact_attention(draw: Draw) -> Tensor:
    """Return the reference attention of the operands of `draw`, in float64."""
    missing = 4 - draw.q.dim()
    q, k, v = (x[(None,) * missing] for x in (draw.q, draw.k, draw.v))
    exact = attention(q, k, v, scale=draw.scale, additive=draw.additive)
    return exact.reshape(exact.shape[missing:])


def rms_error(found: Tensor, exact: Tensor) -> float:
    """Return the root of the mean squared difference, infinity if `found` is not finite."""
    error: float = (found.double() - exact).square().mean().sqrt().item()
    return error if math.isfinite(error) else math.inf


def error_ratio(found: float, plain: float) -> float:
    """Return found / plain; 1 if neither (or both) overflowed or lost anything."""
    if found == plain:
        return 1.0
    return math.inf if plain == 0 else found / plain
