"""One site's data with what several stages ask of it, each computed once."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from mha_lint.oracle.closeness import magnitude
from mha_lint.oracle.data import Operand, SiteData
from mha_lint.oracle.gather import Gathered, constant_along
from mha_lint.oracle.groups import Groups, find_groups
from mha_lint.oracle.layouts import RowLabels, right_labels


class SiteView:
    """A `SiteData` and its cached derivations."""

    def __init__(self, data: SiteData) -> None:
        """Wrap `data`; nothing is computed yet."""
        self.data = data
        self._right: dict[str, tuple[Gathered, RowLabels] | None] = {}

    def operand(self, letter: str) -> Operand:
        """Return operand "q", "k" or "v"."""
        return {"q": self.data.q, "k": self.data.k, "v": self.data.v}[letter]

    def right(self, letter: str) -> tuple[Gathered, RowLabels] | None:
        """Return the gather and row labels of an operand that is split right, else None."""
        if letter not in self._right:
            self._right[letter] = right_labels(self.data, self.operand(letter))
        return self._right[letter]

    @cached_property
    def groups(self) -> Groups | None:
        """Sample and head of each group."""
        right = self.right("q")
        return find_groups(self.data, None if right is None else right[1])

    @cached_property
    def product(self) -> Tensor | None:
        """(G, T_q, T_k), q.k of the site's own operands; None where their shapes forbid it."""
        return product_of(self.data.q.value, self.data.k.value)

    @cached_property
    def hidden(self) -> Tensor:
        """(G, T_q, T_k) bool: entries filled by a mask, in which no score is left to see."""
        logits, raw, additive = self.data.logits, self.data.raw, self.data.additive
        if additive is None:
            return ~torch.isfinite(logits)
        filled = (logits == additive) & (raw != 0)
        drowned = additive.abs() > 1e5 * max(magnitude(raw), 1e-30)
        return filled | drowned | ~torch.isfinite(additive) | ~torch.isfinite(logits)

    @cached_property
    def masked(self) -> Tensor:
        """(G, T_q, T_k) bool: entries that really hide a key (weak fills do not)."""
        logits, additive = self.data.logits, self.data.additive
        if additive is None:
            return torch.isneginf(logits)
        strong = additive < -1e3 * max(1.0, magnitude(self.data.raw))
        return (strong & self.hidden) | torch.isneginf(logits)

    @cached_property
    def key_axes(self) -> tuple[int, ...]:
        """Axes of the native normaliser's input along which only the key changes."""
        native = self.data.native
        if native is None:
            return (-1,)
        left, axes = native.index, []
        for axis in reversed(range(native.full.dim())):
            size = native.full.shape[axis]
            coordinate, left = left % size, left // size
            fixed = constant_along(coordinate, (0, 1))
            if size > 1 and fixed and not constant_along(coordinate, (2,)):
                axes.append(axis)
        return tuple(sorted(axes)) or (-1,)

    @cached_property
    def dead_rows(self) -> Tensor:
        """(G, T_q) bool: queries with no key left, for which softmax is not defined."""
        return torch.isneginf(self.data.logits).all(-1) | self.data.logits.isnan().any(-1)


def product_of(q: Tensor, k: Tensor) -> Tensor | None:
    """Return q.k of (G, T_q, D) and (G, T_k, D) as (G, T_q, T_k), or None."""
    if q.shape[0] != k.shape[0] or q.shape[-1] != k.shape[-1]:
        return None
    return torch.einsum("gqd,gkd->gqk", q, k)
