"""Views that deal elements out anew instead of exchanging axes."""

from __future__ import annotations

import torch
from torch import Tensor

from mha_lint.sites.trace import Trace, varies_along


def redealt(
    traced: Trace, data_axes: tuple[int, ...], rows: tuple[int, ...], samples: tuple[int, ...]
) -> bool:
    """Return whether a plain view dealt elements out anew across two axes of the source.

    Then two source axes change together along one row axis, and an index is not a part by row plus
    a part by the rest (modulo the size, as windows may be rolled). Transposes, windows and axial
    layouts keep the samples apart: an axis of `samples` of the source must be among the two.
    """
    if not bool(traced.responds.all()):
        return False
    index = {a: _filled(traced.index[a]) for a in data_axes if traced.shape[a] > 1}
    if any(bool((i < 0).any()) for i in index.values()):
        return False
    for row in rows:
        moving = [a for a, i in index.items() if varies_along(i, row)]
        if (
            len(moving) > 1
            and set(samples) & set(moving)
            and any(not _separable(index[a], traced.shape[a], row) for a in moving)
        ):
            return True
    return False


def _filled(index: Tensor) -> Tensor:
    """Fill in what was too weak to be told by what the rest of the same vector says."""
    return torch.where(index < 0, index.amax(-1, keepdim=True), index)


def _separable(index: Tensor, size: int, row: int) -> bool:
    step = (index - index.select(row, 0).unsqueeze(row)) % size
    for rest in range(index.dim()):
        if (
            rest != row
            and index.shape[rest] > 1
            and bool((step != step.select(rest, 0).unsqueeze(rest)).any())
        ):
            return False
    return True
