"""The tensors among arguments and results of one torch call, in lists, tuples, dicts, slices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from mha_lint.capture.inplace import Path


def collect(values: Iterable[Any], found: list[torch.Tensor]) -> None:
    """Append the tensors within `values` to `found`."""
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            collect(value, found)
        elif isinstance(value, dict):
            collect(value.values(), found)
        elif isinstance(value, slice):
            collect((value.start, value.stop, value.step), found)


def leaves(value: Any) -> list[torch.Tensor]:
    """Return the tensors within `value`."""
    found: list[torch.Tensor] = []
    collect((value,), found)
    return found


def holds_tensor(value: Any) -> bool:
    """Tell whether `value` is a tensor or a sequence with one."""
    if isinstance(value, torch.Tensor):
        return True
    return isinstance(value, (tuple, list)) and any(holds_tensor(v) for v in value)


def with_paths(value: Any, path: Path) -> list[tuple[Path, torch.Tensor]]:
    """Return the tensors within `value`, which stands at `path`, each with its own path."""
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    if isinstance(value, (tuple, list)):
        return [item for place, v in enumerate(value) for item in with_paths(v, (*path, place))]
    return []


def version(x: torch.Tensor) -> int:
    """Return how often `x` was changed in place; -1 for inference tensors, which keep no count."""
    try:
        return x._version
    except RuntimeError:
        return -1
