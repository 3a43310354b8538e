"""Tensors inside containers and objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


def tensors_in(value: Any, depth: int = 4) -> Iterator[torch.Tensor]:
    """Yield the tensors in containers and attributes of `value`."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item, depth - 1)
    elif depth and isinstance(value, list | tuple | set):
        for item in value:
            yield from tensors_in(item, depth - 1)
    elif depth and hasattr(value, "__dict__") and not isinstance(value, nn.Module | type):
        for item in vars(value).values():
            yield from tensors_in(item, depth - 1)
