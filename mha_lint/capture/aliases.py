"""Which elements of memory a tensor shows, and how a change through one tensor shows in another.

Two tensors of one storage are compared by size, stride and offset when the change is recorded. What
goes into the graph (`ReadThrough`, `WriteThrough`) works on values alone, whatever strides the
values of a later replay have.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Geometry:
    """Size, stride, offset and type of a tensor in its storage, counted in elements."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @classmethod
    def of(cls, x: torch.Tensor) -> Geometry:
        """Return the geometry of `x`."""
        return cls(tuple(x.size()), tuple(x.stride()), int(x.storage_offset()), x.dtype)

    @property
    def numel(self) -> int:
        """Return the number of elements."""
        count = 1
        for n in self.size:
            count *= n
        return count

    @property
    def reach(self) -> tuple[int, int]:
        """Return the first and the last element of the storage that it shows."""
        last = sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))
        return self.offset, self.offset + last

    @property
    def contiguous(self) -> bool:
        """Tell whether its elements stand in row-major order without gaps."""
        expected = 1
        for n, s in zip(reversed(self.size), reversed(self.stride), strict=True):
            if n != 1 and s != expected:
                return False
            expected *= n
        return True

    def positions(self) -> torch.Tensor:
        """Return the place in storage of each element, as one flat row."""
        where = torch.full((1,) * len(self.size), self.offset, dtype=torch.int64, device="cpu")
        for axis, (n, s) in enumerate(zip(self.size, self.stride, strict=True)):
            shape = [1] * len(self.size)
            shape[axis] = n
            where = where + (torch.arange(n, device="cpu") * s).view(shape)
        return where.reshape(-1)


class ReadThrough:
    """The value of a view whose elements all lie within a changed tensor."""

    def __init__(self, changed: Geometry, view: Geometry) -> None:
        """Work out which elements of `changed` the `view` shows, in which order."""
        self.__name__ = self.__qualname__ = "view_read"
        self.__module__ = __name__
        self._size, self._stride, self._offset = (
            view.size,
            view.stride,
            view.offset - changed.offset,
        )
        self._whole = changed.contiguous and view.contiguous and changed.numel == view.numel
        self._picks: torch.Tensor | None = None
        if not changed.contiguous:
            self._picks = _lookup(changed.positions(), view.positions())

    def __call__(self, changed: torch.Tensor) -> torch.Tensor:
        """Return the view of `changed`."""
        if self._whole:
            return changed.reshape(self._size)
        if self._picks is not None:
            return changed.reshape(-1)[self._picks.to(changed.device)].reshape(self._size)
        dense = changed.contiguous()
        return dense.as_strided(self._size, self._stride, dense.storage_offset() + self._offset)


class WriteThrough:
    """The value of a tensor after some of its elements were changed through another one."""

    def __init__(self, old: Geometry, changed: Geometry) -> None:
        """Work out which elements the two share."""
        self.__name__ = self.__qualname__ = "view_write"
        self.__module__ = __name__
        self._inside: tuple[tuple[int, ...], tuple[int, ...], int] | None = None
        first, last = old.reach
        start, stop = changed.reach
        if old.contiguous and first <= start and stop <= last:
            self._inside = (changed.size, changed.stride, changed.offset - old.offset)
            return
        here, there = old.positions(), changed.positions()
        shared = torch.isin(here, there)
        self._to = shared.nonzero().reshape(-1)
        self._from = _lookup(there, here[shared])

    def __call__(self, old: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
        """Return `old` with the shared elements taken from `changed`."""
        new = old.clone(memory_format=torch.contiguous_format)
        if self._inside is not None:
            size, stride, offset = self._inside
            new.as_strided(size, stride, offset).copy_(changed)
            return new
        taken = changed.reshape(-1)[self._from.to(changed.device)].to(new.dtype)
        new.view(-1).index_copy_(0, self._to.to(new.device), taken)
        return new


def covers(changed: Geometry, view: Geometry) -> bool:
    """Tell whether each element of `view` is one of `changed`."""
    first, last = changed.reach
    start, stop = view.reach
    if changed.contiguous:
        return first <= start and stop <= last
    return (
        first <= start
        and stop <= last
        and bool(torch.isin(view.positions(), changed.positions()).all())
    )


def overlap(one: Geometry, other: Geometry) -> bool:
    """Tell whether the two show an element in common."""
    if one.numel == 0 or other.numel == 0:
        return False
    (first, last), (start, stop) = one.reach, other.reach
    if last < start or stop < first:
        return False
    if one.contiguous and other.contiguous:
        return True
    return bool(torch.isin(one.positions(), other.positions()).any())


def _lookup(table: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return where in `table` each of `wanted` stands."""
    order = torch.argsort(table)
    return order[torch.searchsorted(table[order], wanted).clamp_max(len(table) - 1)]
