"""Tensors inside containers and objects."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

_NO_VALUES = (nn.Module, type, ModuleType, FunctionType)
"""What is no value of a call, though it has attributes."""


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
    elif depth and hasattr(value, "__dict__") and not isinstance(value, _NO_VALUES):
        for item in vars(value).values():
            yield from tensors_in(item, depth - 1)
