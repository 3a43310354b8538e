"""Functions that nodes call in place of torch's own, so that a replay does not depend on strides,
on the position of arguments or on the dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def dropout(x: torch.Tensor, *, p: float = 0.5, training: bool = True) -> torch.Tensor:
    """Return `x` with elements dropped at rate `p` when `training`."""
    return torch.dropout(x, p, training)


def view(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return `x` in `shape`: a reshape, so that no replayed value fails for its strides."""
    return x.reshape(shape)


def index(x: torch.Tensor, item: Any) -> torch.Tensor:
    """Return ``x[item]``."""
    return x[item]


def view_as_complex(x: torch.Tensor) -> torch.Tensor:
    """Return pairs of the last axis as complex numbers, whatever the strides of `x`."""
    return torch.view_as_complex(x.contiguous())


def view_as(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return `x` in the shape of `other`."""
    return x.reshape(other.shape)


def grouped_matmul(
    a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None = None, **options: Any
) -> torch.Tensor:
    """Return ``torch._grouped_mm`` for any dtype: rows up to each offset times their own matrix.

    `a` is (rows, n), `b` (groups, n, m), `offs` (groups,) the end of each group of rows.
    """
    double = torch.float64 in (a.dtype, b.dtype)
    if not double or a.dim() != 2 or b.dim() != 3 or offs is None:
        return torch._grouped_mm(a, b, offs=offs, **options)
    ends = offs.tolist()
    starts = [0, *ends[:-1]]
    parts = [a[i:j] @ b[g] for g, (i, j) in enumerate(zip(starts, ends, strict=True))]
    rest = a.new_zeros(a.shape[0] - ends[-1], b.shape[-1])
    return torch.cat([*parts, rest])


class KeywordDropout:
    """Another dropout than the plain one, called with ``p`` and ``training`` by name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Take the positional `function`."""
        self.function = function
        self.__name__ = self.__qualname__ = "dropout"
        self.__module__ = __name__

    def __call__(self, x: torch.Tensor, *, p: float = 0.5, training: bool = True) -> Any:
        """Drop."""
        return self.function(x, p, training)
