"""How often a model has what a model of the same config with fewer layers has once."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import CellType, FunctionType, MethodType

from torch import Tensor, nn

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


def kinds(members: Mapping[str, nn.Module]) -> dict[str, Hashable]:
    """Return for each module of one list, by its path, what those that are alike have in common.

    Other than in `Layers`, the members belong to one model, and what else they hold counts as well.
    """
    plain = {path: _told(module) for path, module in members.items()}
    told = {path: one | _more(members[path], one) for path, one in plain.items()}
    own = _numbers_of_layers(told)
    return {
        path: frozenset((key, _rate(value)) for key, value in _without(one, own).items())
        for path, one in told.items()
    }


def _rate(value: Hashable) -> Hashable:
    """Return one thing for all rates: each layer may drop a little more than the one before."""
    match value:
        case (_, float(number)) if 0 < number < 1:
            return "rate"
    return value


def _more(module: nn.Module, plain: Told) -> dict[Hashable, Hashable]:
    """Return what else is held: other attributes, hooks, and which parameters learn or are zero."""
    found: dict[Hashable, Hashable] = {}
    for name, inner in module.named_modules():
        for own, parameter in inner.named_parameters(recurse=False):
            found[name, "learns", own] = (parameter.requires_grad, _zero(parameter))
        for own, value in vars(inner).items():
            if own.endswith("_hooks") and value:
                found[name, "hooks", own] = tuple(_held(hook) for hook in value.values())
            elif own not in OF_TORCH and (name, "attribute", own) not in plain:
                found[name, "held", own] = _held(value)
    return found


OF_TORCH = frozenset(vars(nn.Module()))
"""What every module holds: its parts and hooks are told otherwise."""
DEEP = 4
"""So far attributes of attributes are looked at."""


def _zero(parameter: Tensor) -> bool:
    try:
        return not bool(parameter.any())
    except (RuntimeError, NotImplementedError, ValueError):  # it has no values
        return False


def _held(value: object, depth: int = DEEP) -> Hashable:
    """Return what tells one attribute from others: its content as far as that is plain."""
    if isinstance(value, int | float | str | bytes | None):
        return _rate((type(value), value))
    if isinstance(value, Tensor):
        return (tuple(value.shape), value.dtype, value.requires_grad)
    if isinstance(value, nn.Module | type) or not depth:
        return ("a", type(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return (type(value), tuple(_held(v, depth - 1) for v in value))
    if isinstance(value, dict):
        return tuple((_held(k, depth - 1), _held(v, depth - 1)) for k, v in value.items())
    if isinstance(value, partial):
        return tuple(_held(v, depth - 1) for v in (value.func, value.args, value.keywords))
    if isinstance(value, FunctionType):
        cells = tuple(_held(_content(c), depth - 1) for c in value.__closure__ or ())
        return (value.__code__, _held(value.__defaults__, depth - 1), cells)
    if isinstance(value, MethodType):
        return ("method", _held(value.__func__, depth - 1))
    return ("a", type(value), _held(dict(getattr(value, "__dict__", {})), depth - 1))


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned yet
        return None


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
