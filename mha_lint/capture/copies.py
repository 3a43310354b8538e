"""Keep the caller's module and arguments as they are, whatever the recorded call does to them.

Recording works on deep copies. A module that cannot be copied is recorded itself, and its
attributes, buffers and parameters are put back afterwards.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from mha_lint.capture.leaves import version
from mha_lint.targets.large import has_no_values

Subject = nn.Module | Callable[..., Any]
_CONTAINERS = (dict, list, set)
_LARGE = 1 << 28
"""Parameters of more bytes than this are shared with the copy, not duplicated."""


@dataclass(slots=True)
class Copied:
    """A subject and its arguments, apart from the caller's own as far as possible."""

    subject: Subject
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def copied(subject: Subject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Copied:
    """Return a copy of all three in which shared tensors stay shared."""
    with torch.no_grad():
        try:
            memo = _shared_parameters(subject)
            return Copied(*copy.deepcopy((subject, args, kwargs), memo))
        except Exception:  # whatever user classes raise; the fallbacks do with less
            held: dict[int, torch.Tensor] = {}
            new_args, new_kwargs = _arguments(args, held), _arguments(kwargs, held)
        try:
            return Copied(copy.deepcopy(subject, _shared_parameters(subject)), new_args, new_kwargs)
        except Exception:
            return Copied(subject, new_args, new_kwargs)


def _shared_parameters(subject: Subject) -> dict[int, Any]:
    if not isinstance(subject, nn.Module):
        return {}
    parameters = [p for p in subject.parameters() if _has_values(p)]
    if sum(p.numel() * p.element_size() for p in parameters) <= _LARGE:
        return {}
    return {id(p): p for p in parameters}


def has_lazy_parameters(subject: Subject) -> bool:
    """Tell whether `subject` has parameters that get their size only when it is called."""
    owner = owner_of(subject)
    return owner is not None and any(not _has_values(p) for p in owner.parameters())


def _has_values(x: Any) -> bool:
    return not is_lazy(x)


def _arguments(value: Any, held: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return held.setdefault(id(value), value.detach().clone())
    if type(value) in (list, tuple):
        return type(value)([_arguments(v, held) for v in value])
    if type(value) is dict:
        return {k: _arguments(v, held) for k, v in value.items()}
    try:
        return copy.deepcopy(value)
    except Exception:  # then the call gets the object itself
        return value


def owner_of(subject: Subject) -> nn.Module | None:
    """Return the module that `subject` is, or whose method it is."""
    if isinstance(subject, nn.Module):
        return subject
    bound = getattr(subject, "__self__", None)
    return bound if isinstance(bound, nn.Module) else None


def _keep_nothing(x: torch.Tensor) -> None:
    """Let the changed value of `x` go."""


@contextmanager
def kept_as_it_was(
    subject: Subject, before_reset: Callable[[torch.Tensor], None] = _keep_nothing
) -> Iterator[None]:
    """Put attributes, buffers and parameters of a module back at the end.

    `before_reset` is told each tensor whose new value is about to be overwritten.
    """
    owner = owner_of(subject)
    modules = list(owner.modules()) if owner is not None else []
    attributes = [(m, dict(vars(m))) for m in modules]
    held = [
        (v, copy.copy(v))
        for _, items in attributes
        for v in items.values()
        if type(v) in _CONTAINERS
    ]
    tensors = [
        (t, version(t), t if has_no_values(t) else t.detach().clone(), kind == "buffer")
        for m in modules
        for kind, held in (("parameter", m._parameters), ("buffer", m._buffers))
        for t in held.values()
        if t is not None and _has_values(t)
    ]
    try:
        yield
    finally:
        for module, before in attributes:
            vars(module).clear()
            vars(module).update(before)
        for container, content in held:
            if isinstance(container, list):
                container[:] = content
            else:
                container.clear()
                container.update(content)
        with torch.no_grad():
            for t, count, value, buffer in tensors:
                # Norms change their statistics without counting it.
                quiet = buffer or count < 0
                if has_no_values(t):  # there is nothing to put back
                    continue
                if version(t) != count or (quiet and not torch.equal(t, value)):
                    before_reset(t)
                    t.data.copy_(value)
