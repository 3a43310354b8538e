"""One call of a module or function as a program makes it, copied so that it can be made again."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mha_lint.model.source import Span
from mha_lint.targets.large import is_large
from mha_lint.targets.make import fresh, parameters_of
from mha_lint.targets.subject import names_of

SHARED = 1 << 30
"""Parameters of more bytes than this are shared with the snapshot, not copied."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was called, its arguments before the call, and where.

    ``where``: the place of the call as the user would look for it, "train.py:34". ``enclosing``:
    calls that this one was made in, the innermost first. ``count``: modules of the same class that are called
    alike (the layers of a model), this one included. ``autocast``: the devices that ran it in a type
    of their own, with that type. ``defaults``: type and device of new tensors.
    """

    name: str
    module: nn.Module | Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    span: Span
    where: str = ""
    enclosing: tuple[Snapshot, ...] = ()
    notes: tuple[str, ...] = ()
    count: int = 1
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    defaults: tuple[torch.dtype, torch.device] | None = None

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Return the names of the parameters that the arguments fill."""
        return names_of(self.args, self.kwargs, parameters_of(self.module))


def take(
    module: nn.Module | Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    where: str = "",
    enclosing: tuple[Snapshot, ...] = (),
    notes: tuple[str, ...] = (),
) -> Snapshot:
    """Copy ``module(*args, **kwargs)`` as it stands now: values, mode and all, without gradients."""
    span, name = place_of(module)
    with torch.no_grad():
        own, own_args, own_kwargs = _copies(unwrapped(module), args, kwargs)
    return Snapshot(name, own, own_args, own_kwargs, span, where, enclosing, notes)


def unwrapped(module: nn.Module | Callable[..., Any]) -> Any:
    """Return what ``torch.compile`` or ``nn.DataParallel`` wraps, else `module` itself."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = module.module
        if inner is None:
            inner = getattr(module, "_torchdynamo_orig_callable", None)
        if inner is None or inner is module:
            return module
        module = inner


def with_count(snapshot: Snapshot, count: int) -> Snapshot:
    """Return `snapshot` with the number of modules that it stands for."""
    return replace(snapshot, count=count)


def place_of(module: nn.Module | Callable[..., Any]) -> tuple[Span, str]:
    """Return where the class or function of `module` begins, and its qualified name."""
    module = unwrapped(module)
    made: Any = type(module) if isinstance(module, nn.Module) else module
    while isinstance(made, partial):
        made = made.func
    made = inspect.unwrap(made) if callable(made) else made
    made = getattr(made, "__func__", made)
    name = str(getattr(made, "__qualname__", type(made).__name__)).replace("<locals>.", "")
    path, line = _first_line(made)
    return Span(path, line, 1, line, 1), name


def _first_line(made: Any) -> tuple[str, int]:
    code = getattr(made, "__code__", None)
    if code is not None:
        return _absolute(code.co_filename), code.co_firstlineno
    try:
        path = inspect.getsourcefile(made)
        return _absolute(path or "<unknown>"), inspect.getsourcelines(made)[1]
    except (OSError, TypeError):
        pass
    forward = getattr(made, "forward", None)
    code = getattr(inspect.unwrap(forward), "__code__", None) if forward is not None else None
    if code is None:
        return "<unknown>", 1
    return _absolute(code.co_filename), code.co_firstlineno


def _absolute(path: str) -> str:
    return path if path.startswith("<") else str(Path(path).absolute())


def _copies(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return copies of all three in which shared tensors stay shared, as far as they can be made."""
    memo = _kept(module)
    plain = (_detached(args, memo), _detached(kwargs, memo))
    try:
        return copy.deepcopy((module, *plain), memo)
    except Exception:  # whatever user classes raise: the call itself does not change weights
        return module, fresh(plain[0]), fresh(plain[1])


def _kept(module: Any) -> dict[int, Any]:
    """Return the copies that `copy.deepcopy` takes as made: large weights stay where they are."""
    if not isinstance(module, nn.Module):
        return {}
    parameters = list(module.parameters())
    if is_large(module):
        return {id(p): p for p in (*parameters, *module.buffers())}
    if sum(p.numel() * p.element_size() for p in parameters if _sized(p)) <= SHARED:
        return {}
    return {id(p): p for p in parameters}


def _sized(p: torch.Tensor) -> bool:
    return not torch.nn.parameter.is_lazy(p)


def _detached(value: Any, memo: dict[int, Any]) -> Any:
    """Return `value` with tensors that carry a graph, which cannot be copied, cut off from it."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad and not value.is_leaf:
            known = memo.get(id(value))
            if known is None:
                known = memo[id(value)] = value.detach().clone()
            return known
        return value
    if type(value) in (list, tuple):
        return type(value)([_detached(item, memo) for item in value])
    if type(value) is dict:
        return {key: _detached(item, memo) for key, item in value.items()}
    return value
