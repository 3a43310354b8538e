"""Other lengths of a call: parts of its own arguments, cut alike wherever the same size stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from mha_lint.targets.tensors import tensors_in

LEAST = 4
"""Lengths below this are not cut: one position less would leave hardly any."""


def shortened(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield the arguments with their lengths cut, the most thorough cut first.

    A length is the size of an axis that is neither a sample's nor a channel's: all but the first and
    the last axis of a tensor of three or more, the last of a tensor of two. Where the same size
    stands on other axes (a mask (T, T), position ids), it is cut there too.
    """
    lengths = lengths_of(list(tensors_in((args, kwargs))))
    tried: set[tuple[tuple[int, int], ...]] = set()
    for cut in (_cuts(lengths), *({n: _less(n)} for n in lengths)):
        key = tuple(sorted(cut.items()))
        if not cut or key in tried:
            continue
        tried.add(key)
        yield with_sizes(args, cut), with_sizes(kwargs, cut)


def _cuts(lengths: list[int]) -> dict[int, int]:
    """Return a new size for each length, all different."""
    new: dict[int, int] = {}
    for n in lengths:
        less = _less(n)
        while less in new.values() and less > 2:
            less -= 1
        new[n] = less
    return new


def _less(n: int) -> int:
    """Return a smaller length that no window or pair of positions divides by chance: an odd one."""
    less = n - max(1, n // 3)
    return less if less % 2 else less - 1


def lengths_of(tensors: list[torch.Tensor]) -> list[int]:
    """Return the sizes of axes that may be lengths, the most frequent first."""
    counted: Counter[int] = Counter()
    widths = {x.shape[-1] for x in tensors if x.dim() >= 3 and x.is_floating_point()}
    for x in tensors:
        axes = x.shape[1:-1] if x.dim() >= 3 else x.shape[1:] if x.dim() == 2 else ()
        counted.update(n for n in axes if n >= LEAST and n not in widths)
    return [n for n, _ in counted.most_common()]


def with_sizes(value: Any, cut: dict[int, int]) -> Any:
    """Return `value` with every axis of a size in `cut` narrowed to the size there."""
    if isinstance(value, torch.Tensor):
        for axis, n in enumerate(value.shape):
            if n in cut:
                value = value.narrow(axis, 0, cut[n])
        return value
    if type(value) in (list, tuple):
        return type(value)([with_sizes(item, cut) for item in value])
    if type(value) is dict:
        return {key: with_sizes(item, cut) for key, item in value.items()}
    return value
