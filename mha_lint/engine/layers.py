"""How often a model has what a model of the same config with fewer layers has once."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import nn

NUMBER = re.compile(r"\d+")
Told = Mapping[Hashable, Hashable]


@dataclass(frozen=True, slots=True)
class Layers:
    """Two models of one config: `whole` has all layers, `few` has some of each kind.

    Two modules are alike if their paths differ in numbers alone, and they have the same class, shapes
    of parameters and buffers, and plain attributes throughout, but for a layer's own number.
    """

    whole: nn.Module
    few: nn.Module

    def alike(self, paths: Iterable[str]) -> set[str] | None:
        """Return the paths in `whole` of what is alike one of `paths` in `few`.

        None: for one of them there is nothing.
        """
        found: set[str] = set()
        for path in paths:
            fitting = self._fitting(path)
            if not fitting:
                return None
            found |= fitting
        return found

    def _fitting(self, path: str) -> set[str]:
        family = _family(path)
        members = {p: _told(m) for p, m in self.whole.named_modules() if _family(p) == family}
        own = _numbers_of_layers(members)
        wanted = _without(_told(self.few.get_submodule(path)), own)
        return {p for p, told in members.items() if _without(told, own) == wanted}


def _told(module: nn.Module) -> dict[Hashable, Hashable]:
    """Return what tells `module` from others."""
    return {
        key: value for name, inner in module.named_modules() for key, value in _own(name, inner)
    }


def _own(name: str, module: nn.Module) -> Iterator[tuple[Hashable, Hashable]]:
    yield (name, "class"), type(module).__qualname__
    tensors = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
    for own, tensor in tensors:
        yield (name, "tensor", own), (tuple(tensor.shape), tensor.dtype)
    for own, value in vars(module).items():
        if not own.startswith("_") and isinstance(value, int | float | str | None):
            yield (name, "attribute", own), (type(value), value)


def _numbers_of_layers(members: Mapping[str, Told]) -> set[Hashable]:
    """Return the attributes that hold the number of the layer that they are in."""
    if len(members) < 2:
        return set()
    shared = set.intersection(*(set(told) for told in members.values()))
    return {
        key
        for key in shared
        if len({told[key] for told in members.values()}) > 1
        and all(told[key] in _numbers(path) for path, told in members.items())
    }


def _numbers(path: str) -> set[Hashable]:
    return {(int, int(number)) for number in NUMBER.findall(path)}


def _without(told: Told, keys: set[Hashable]) -> dict[Hashable, Hashable]:
    return {key: value for key, value in told.items() if key not in keys}


def _family(path: str) -> str:
    return NUMBER.sub("#", path)


def in_order(paths: Iterable[str]) -> tuple[str, ...]:
    """Return paths of modules as they stand in the model, layer 2 before layer 10."""
    return tuple(sorted(paths, key=_order))


def _order(path: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(s), "") if s.isdigit() else (-1, s) for s in path.split("."))
