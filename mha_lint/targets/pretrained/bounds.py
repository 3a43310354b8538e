"""A limit on the time and the memory of one call, looked at before each operation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

MOST_ELEMENTS = 1 << 26
"""Of one result: 256 MB as float32."""


class TooMuchError(RuntimeError):
    """A call would take more memory or time than a small model needs."""


class Bounded(TorchFunctionMode):
    """Stops operations within the block that would make too much, and all after a deadline."""

    def __init__(self, seconds: float) -> None:
        """Start to count the time."""
        super().__init__()
        self.deadline = time.thread_time() + seconds

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operation, if it is small."""
        if time.thread_time() > self.deadline:
            raise TooMuchError("the call takes too long")
        name = getattr(func, "__name__", "")
        elements = _PRODUCTS[name](args) if name in _PRODUCTS else _broadcast(args)
        if elements > MOST_ELEMENTS:
            raise TooMuchError(f"{name} would make {elements} elements")
        return func(*args, **(kwargs or {}))


def _product(args: tuple[Any, ...]) -> int:
    """Return the elements of a matrix product."""
    if len(args) < 2 or not all(isinstance(a, Tensor) and a.dim() > 1 for a in args[:2]):
        return 0
    one, other = args[:2]
    batch = max(math.prod(one.shape[:-2]), math.prod(other.shape[:-2]))
    return int(batch * one.shape[-2] * other.shape[-1])


def _broadcast(args: tuple[Any, ...]) -> int:
    """Return the elements of two tensors joined by their axes."""
    if len(args) < 2 or not all(type(a) is Tensor for a in args[:2]):
        return 0
    shapes = zip_longest(reversed(args[0].shape), reversed(args[1].shape), fillvalue=1)
    return math.prod(max(pair) for pair in shapes)


def _made(args: tuple[Any, ...]) -> int:
    sizes = args[0] if args and isinstance(args[0], tuple | list | torch.Size) else args
    return math.prod(abs(n) for n in sizes if isinstance(n, int))


_PRODUCTS: dict[str, Callable[[tuple[Any, ...]], int]] = {
    **dict.fromkeys(("matmul", "bmm", "__matmul__"), _product),
    **dict.fromkeys(("zeros", "ones", "empty", "rand", "randn"), _made),
}
