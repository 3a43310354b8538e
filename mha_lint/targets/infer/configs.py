"""Config objects: which class of the user is one, what it holds, and stand-ins as expressions."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from mha_lint.targets.infer.scheme import Scheme
from mha_lint.targets.infer.signatures import parameters_of
from mha_lint.targets.infer.sized import sized
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.words import words

METHODS = words("get keys items values update copy pop setdefault to_dict")
"""What is read of a config without being an entry."""

_LARGE = {
    Role.WIDTH: 63,
    Role.INNER: 255,
    Role.HEAD_DIM: 15,
    Role.LAYERS: 2,
    Role.VOCABULARY: 255,
}
"""Defaults beyond these are replaced: hundreds of replays should take a second."""

_SETTLED = (Role.WIDTH, Role.HEADS, Role.LAYERS, Role.VOCABULARY)
"""``n_embd: int = None`` and ``vocab_size: int = -1`` are to be set by the caller."""

TEXT = words("split lower upper strip startswith endswith format join replace")
"""What is read of strings: an entry of which only this is read is one."""

TENSOR = words("size shape dim device dtype to view reshape ndim new_zeros")
"""What is read of tensors: an argument of which only this is read is no config."""


def render_config(fields: dict[str, str], shape: str) -> str:
    """Return a config as an expression; `shape`: "namespace", "dict" or "both"."""
    if shape == "dict":
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in fields.items()) + "}"
    inside = ", ".join(f"{key}={text}" for key, text in fields.items())
    return f"SimpleNamespace({inside})" if shape == "namespace" else f"AttributeDict({inside})"


def config_shape(entries: dict[str, set[str]], annotated: Any) -> str:
    """Return how a config is read: as a "namespace", a "dict", or "both" ways."""
    ways = set().union(*(how for name, how in entries.items() if name not in METHODS), set())
    methods = entries.keys() & METHODS - {
        "get",
        "keys",
        "items",
        "values",
        "copy",
        "update",
        "pop",
    }
    if annotated is dict or (ways and "attribute" not in ways):
        return "dict"
    if "item" in ways or methods or ("get" in ways and ways != {"get"}):
        return "both"
    return "namespace"


def small_entries(parameters: Iterable[inspect.Parameter], scheme: Scheme) -> dict[str, str]:
    """Return entries that make a config with large defaults small; none where they are small."""
    found: dict[str, str] = {}
    for parameter in parameters:
        default, role = parameter.default, role_of(parameter.name)
        unset = role in _SETTLED and (
            (default is None and parameter.annotation in (int, "int"))
            or (type(default) is int and default < 0)
        )
        if unset or (type(default) is int and role in _LARGE and default > _LARGE[role]):
            found[parameter.name] = sized(parameter.name, role, scheme)[0]
    if not any(role_of(name) in (Role.WIDTH, Role.VOCABULARY) for name in found):
        return {}
    for parameter in parameters:
        default, role = parameter.default, role_of(parameter.name)
        if role is Role.HEADS and type(default) is int:
            found[parameter.name] = str(scheme.heads)
        elif role is Role.KV_HEADS and type(default) is int:
            found[parameter.name] = str(scheme.kv_heads if default > 1 else 1)
    return found


def is_config_class(value: type) -> bool:
    """Tell whether a class mostly holds data, as configs do."""
    if issubclass(value, nn.Module | BaseException) or value.__module__.startswith(
        ("torch", "builtins", "typing", "collections", "abc", "enum", "pathlib", "math")
    ):
        return False
    if dataclasses.is_dataclass(value) or hasattr(value, "model_fields"):
        return True
    if any(base.__name__ == "PretrainedConfig" for base in value.__mro__):
        return True
    public = [k for k in vars(value) if not k.startswith("_")]
    data = [k for k in public if not callable(vars(value)[k])]
    return (bool(data) and len(data) >= len(public) / 2) or (
        not public and "__init__" in vars(value)
    )


def field_names(value: type) -> Iterator[str]:
    """Yield the names of the entries of a config class."""
    if dataclasses.is_dataclass(value):
        yield from (f.name for f in dataclasses.fields(value))
        yield from (k for k, v in vars(value).items() if isinstance(v, property))
        return
    yield from (p.name for p in parameters_of(value))
    yield from getattr(value, "model_fields", ())
    for base in value.__mro__[:-1]:
        yield from (k for k in vars(base) if not k.startswith("_"))
