"""Caches that a module keeps itself: tensors of its own that a call writes to.

What they are called does not matter. An argument tells where to write, if with a number that is one
larger the same rows are written one further on.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from mha_lint.facts.caching.arguments import Arguments
from mha_lint.facts.caching.fresh import fresh_module
from mha_lint.facts.caching.state import may_keep
from mha_lint.targets.infer.signatures import parameters_of
from mha_lint.targets.subject import Subject

LEAST_AXES = 3
"""Axes of a tensor that holds positions: sums and means over them, as norms keep, have fewer."""


def writes_to_itself(subject: Subject) -> bool:
    """Return whether a call changes a tensor of the module with an axis of positions."""
    return any(bool(c.any()) for c in _written(subject, {}).values())


def told_places(subject: Subject, arguments: Arguments) -> dict[str, tuple[Any, bool]]:
    """Return the arguments that tell where to write, each with its value and whether it is required."""
    if not isinstance(subject.module, nn.Module) or not may_keep(subject.module):
        return {}
    found: dict[str, tuple[Any, bool]] = {}
    for parameter in parameters_of(subject.module.forward):
        name, required = parameter.name, parameter.default is inspect.Parameter.empty
        value = arguments.recorded.get(name, parameter.default)
        if isinstance(value, bool) or not isinstance(value, int) or name in arguments.places:
            continue
        if _moves_what_is_written(subject, name, value, arguments.length):
            found[name] = (value, required)
    return found


def _moves_what_is_written(subject: Subject, name: str, value: int, length: int) -> bool:
    """Return whether `length` rows are written, and those next to them when told one more."""
    if length < 2:
        return False  # the number of a layer would do the same
    first, then = (_written(subject, {name: v}) for v in (value, value + 1))
    for tensor, change in first.items():
        other = then.get(tensor)
        if other is None or other.shape != change.shape:
            continue
        for axis in range(change.dim()):
            here, there = _rows(change, axis), _rows(other, axis)
            if len(here) == length and there == [row + 1 for row in here]:
                return True
    return False


def _rows(change: Tensor, axis: int) -> list[int]:
    rows = change.movedim(axis, 0).flatten(1).any(1)
    return [int(n) for n in rows.nonzero()[:, 0]]


def _written(subject: Subject, told: dict[str, int]) -> dict[str, Tensor]:
    """Return which elements of its own tensors a module made anew changes in a call."""
    module = fresh_module(subject)
    if not isinstance(module, nn.Module):
        return {}
    before = {n: t.detach().clone() for n, t in _own_tensors(module).items()}
    values = [*subject.args, *subject.kwargs.values()]
    if not before or len(values) != len(subject.argument_names):
        return {}
    given = dict(zip(subject.argument_names, values, strict=True)) | told
    try:
        with torch.no_grad(), subject.environment():
            module(**given)
    except (Exception, SystemExit):  # user code: what cannot be called keeps nothing
        return {}
    after = _own_tensors(module)
    return {
        n: after[n] != b
        if after[n].shape == b.shape
        else torch.ones_like(after[n], dtype=torch.bool)
        for n, b in before.items()
        if n in after
    }


def _own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers and plain tensors of all parts of `module` that may hold positions."""
    return {
        f"{path}.{name}": value
        for path, part in module.named_modules()
        for name, value in [*part._buffers.items(), *vars(part).items()]
        if isinstance(value, Tensor) and value.dim() >= LEAST_AXES
    }
