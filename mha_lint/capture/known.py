"""The names of tensors that exist before the call: parameters, buffers, attributes, globals."""

from __future__ import annotations

import contextlib
import inspect
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from mha_lint.capture.copies import Subject, owner_of
from mha_lint.capture.frames import Place
from mha_lint.capture.walk import PLAIN, tensors_in

_INTERNAL = frozenset(("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"))
_CONTAINERS = (dict, list, tuple, set, OrderedDict)


class KnownTensors:
    """Tells what a tensor is that no recorded operation made."""

    def __init__(
        self, subject: Subject, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Collect what `subject` holds: registered tensors first, then plain attributes.

        Modules among the arguments count as well.
        """
        self._names: dict[int, tuple[str, str]] = {}
        self._keep: list[torch.Tensor] = []
        self.modules: dict[str, nn.Module] = {}
        """The submodules by qualified name."""
        owner = owner_of(subject)
        seen: set[int] = set()
        if owner is not None:
            self.modules = dict(owner.named_modules())
            for path, module in self.modules.items():
                self._registered(module, path, "parameter", "buffer")
            for path, module in self.modules.items():
                self._attributes(module, path, seen)
        else:
            self._function(subject, seen)
        for path, module in _modules_in(args, "args") + _modules_in(dict(kwargs or {}), "kwargs"):
            self._hidden(module, path, seen)

    def _registered(self, module: nn.Module, path: str, parameter: str, buffer: str) -> None:
        for kind, held in ((parameter, module._parameters), (buffer, module._buffers)):
            for key, x in held.items():
                if x is not None:
                    self.add(x, kind, f"{path}.{key}" if path else key)

    def add(self, x: torch.Tensor, kind: str, name: str) -> None:
        """Name `x`, unless it has a name."""
        if id(x) not in self._names:
            self._names[id(x)] = (kind, name)
            self._keep.append(x)

    def _attributes(self, module: nn.Module, path: str, seen: set[int]) -> None:
        if id(module) in seen:
            return
        seen.add(id(module))
        for key, value in vars(module).items():
            if (
                type(value) in PLAIN
                or key in _INTERNAL
                or (type(value) in _CONTAINERS and not value)
            ):
                continue
            name = f"{path}.{key}" if path else key
            for inner, x in tensors_in(value, name):
                self.add(x, "constant", inner)
            for inner, hidden in _modules_in(value, name):
                self._hidden(hidden, inner, seen)

    def _hidden(self, outer: nn.Module, path: str, seen: set[int]) -> None:
        """Add the tensors of a module in a plain list, which registers nothing."""
        for sub, module in outer.named_modules(prefix=path):
            if id(module) not in seen:
                self._registered(module, sub, "constant", "constant")
                self._attributes(module, sub, seen)

    def _function(self, function: Any, seen: set[int]) -> None:
        """Add what a function closes over, its defaults, and the globals that it names."""
        inner = inspect.unwrap(getattr(function, "func", function))
        code = getattr(inner, "__code__", None)
        held: dict[str, Any] = {}
        if code is not None:
            globals_ = inner.__globals__
            held.update((n, globals_[n]) for n in code.co_names if n in globals_)
            for name, cell in zip(code.co_freevars, inner.__closure__ or (), strict=False):
                with contextlib.suppress(ValueError):  # a cell may still be empty
                    held[name] = cell.cell_contents
            held["default"] = (inner.__defaults__, inner.__kwdefaults__)
        elif not isinstance(inner, type):
            held["self"] = inner
        for name, value in held.items():
            for path, x in tensors_in(value, name):
                self.add(x, "constant", path)
            for path, module in _modules_in(value, name):
                for sub, part in module.named_modules(prefix=path):
                    self.modules.setdefault(sub, part)
                    self._registered(part, sub, "parameter", "buffer")
                    self._attributes(part, sub, seen)

    def describe(self, x: torch.Tensor, place: Place | None) -> tuple[str, str]:
        """Return ``(kind, name)`` of `x`, used at `place`; kind "unrecorded" if none knows it."""
        known = self._names.get(id(x))
        if known is not None:
            return known
        name = _global_name(x, place)
        if name is not None:
            self.add(x, "constant", name)
            return "constant", name
        return "unrecorded", f"a tensor of shape {tuple(x.shape)}"


def _modules_in(value: object, name: str) -> list[tuple[str, nn.Module]]:
    if isinstance(value, nn.Module):
        return [(name, value)]
    if isinstance(value, (list, tuple)):
        return [m for i, v in enumerate(value) for m in _modules_in(v, f"{name}[{i}]")]
    if isinstance(value, dict):
        return [m for k, v in value.items() for m in _modules_in(v, f"{name}[{k!r}]")]
    return []


def _global_name(x: torch.Tensor, place: Place | None) -> str | None:
    """Return the name of `x` among the globals and class attributes of the running functions."""
    seen: set[int] = set()
    while place is not None and (frame := place.frame) is not None:
        names = frame.f_globals
        if id(names) not in seen:
            seen.add(id(names))
            for key, value in list(names.items()):
                if value is x or _is_item(x, value):
                    return key
        first = frame.f_code.co_varnames[0] if frame.f_code.co_argcount else None
        if first is not None:
            owner = frame.f_locals.get(first)
            for cls in type(owner).__mro__ if owner is not None else ():
                for key, value in vars(cls).items():
                    if value is x or _is_item(x, value):
                        return f"{cls.__name__}.{key}"
        place = place.up
    return None


def _is_item(x: torch.Tensor, value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(v is x for v in value)
    return type(value) is dict and any(v is x for v in value.values())
