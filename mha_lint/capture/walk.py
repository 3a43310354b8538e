"""Find the tensors inside arguments, results and attributes, whatever holds them.

PyTree libraries see lists, tuples and dicts only. Real modules also pass dataclasses, named tuples,
``ModelOutput`` and cache objects, so plain instances are walked through their ``__dict__`` too.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

_LEAVES = (
    type(None), bool, int, float, complex, str, bytes, type, enum.Enum, range, slice,
    types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
    torch.dtype, torch.device, torch.Size, torch.Generator,
)  # fmt: skip
_DEEPEST = 12
PLAIN = frozenset((type(None), bool, int, float, str))
"""The commonest types that hold no tensor, to pass over them quickly."""


def tensors_in(value: object, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield ``(path, tensor)`` for each tensor in `value`, in order; modules are not entered.

    Paths read as source: ``cache[0]``, ``past["keys"]``, ``state.mask``.
    """
    return _walk(value, name, set(), 0)


_MOST = 20_000
"""Objects looked at in one walk: a reference to a whole application must not take forever."""


def _walk(
    value: object, name: str, seen: set[int], depth: int
) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if (
        isinstance(value, (*_LEAVES, nn.Module))
        or depth > _DEEPEST
        or id(value) in seen
        or len(seen) > _MOST
    ):
        return
    seen.add(id(value))
    for step, item in _items(value):
        yield from _walk(item, name + step, seen, depth + 1)


def _items(value: Any) -> Iterator[tuple[str, object]]:
    """Yield the parts of one container with the text that selects each."""
    if isinstance(value, Mapping):
        try:
            pairs = list(value.items())
        except Exception:  # a hostile mapping is a mapping without tensors
            return
        yield from ((f"[{key!r}]", item) for key, item in pairs)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from ((f".{key}", item) for key, item in zip(value._fields, value, strict=False))
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        return  # no order to name items by, and tensors in sets are not data
    else:
        yield from _attributes(value)


def _attributes(value: Any) -> list[tuple[str, object]]:
    try:
        held = dict(vars(value)) if isinstance(getattr(value, "__dict__", None), dict) else {}
        held |= {
            s: getattr(value, s)
            for c in type(value).__mro__
            for s in _slots(c)
            if hasattr(value, s)
        }
    except Exception:  # user classes may raise anything from attribute access
        return []
    return [(f".{key}", item) for key, item in held.items()]


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(n for n in names if n not in ("__dict__", "__weakref__"))
