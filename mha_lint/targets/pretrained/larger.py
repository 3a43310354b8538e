"""The call of a small model with larger pictures: what is left of small ones may be one position."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from mha_lint.targets.make import StageError, run_once
from mha_lint.targets.subject import Subject

FACTORS = (8, 4)
LARGER = "called with larger pictures: of small ones one position is left"


def with_larger_pictures(subject: Subject) -> Iterator[Subject]:
    """Yield `subject` called with larger pictures, as far as it takes them."""
    for factor in FACTORS:
        args = tuple(_larger(value, factor) for value in subject.args)
        kwargs = {name: _larger(value, factor) for name, value in subject.kwargs.items()}
        notes = (*subject.notes, LARGER)
        made = dataclasses.replace(subject, args=args, kwargs=kwargs, notes=notes)
        if all(a is b for a, b in zip(_values(made), _values(subject), strict=True)):
            return
        try:
            with subject.environment():
                run_once(made)
        except StageError:
            continue
        yield made


def _values(subject: Subject) -> list[Any]:
    return [*subject.args, *subject.kwargs.values()]


def _larger(value: Any, factor: int) -> Any:
    """Return `value` repeated along both sides of its pictures, or itself if it holds none."""
    if not isinstance(value, torch.Tensor) or value.dim() < 4 or not value.is_floating_point():
        return value
    return value.repeat(*(1,) * (value.dim() - 2), factor, factor)
