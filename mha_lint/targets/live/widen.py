"""Two samples in place of one: with a batch of one nobody can tell samples from heads."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch

from mha_lint.targets.live.snapshot import Snapshot
from mha_lint.targets.make import StageError, run_once
from mha_lint.targets.subject import Subject
from mha_lint.targets.tensors import tensors_in

TOLERANCE = 1e-4


def widened(snapshot: Snapshot, subject: Subject) -> Snapshot | None:
    """Return `snapshot` with a second sample, if its call has one and takes two.

    `subject` is made of `snapshot`. The first sample must come out as it did alone: only then it is
    samples that the first axis holds.
    """
    main = next((x for x in tensors_in((subject.args, subject.kwargs)) if x.dim() > 1), None)
    if main is None or main.dim() < 2 or main.shape[0] != 1 or main.numel() < 2:
        return None
    made = replace(snapshot, args=_doubled(snapshot.args), kwargs=_doubled(snapshot.kwargs))
    two = replace(subject, args=made.args, kwargs=made.kwargs)
    try:
        with subject.environment():
            before = list(tensors_in(run_once(subject)))
            after = list(tensors_in(run_once(two)))
    except StageError:
        return None
    return made if _same(before, after) else None


def _same(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    if len(before) != len(after) or not before:
        return False
    one, two = before[0], after[0]
    if one.dim() < 2 or two.shape != (2, *one.shape[1:]) or one.shape[0] != 1:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one[0], two[0]))
    alike = torch.allclose(one[0], two[0], rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    return alike and not torch.allclose(two[0], two[1], rtol=TOLERANCE, atol=TOLERANCE)


def _doubled(value: Any, depth: int = 3) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dim() < 2 or value.shape[0] != 1:
            return value
        return torch.cat([value, _another(value)])
    if type(value) in (list, tuple):
        return type(value)([_doubled(item, depth) for item in value])
    if type(value) is dict:
        return {key: _doubled(item, depth) for key, item in value.items()}
    if depth and next(tensors_in(value), None) is not None:  # a cache
        made = copy.copy(value)
        for name, item in vars(value).items():
            made.__dict__[name] = _doubled(item, depth - 1)
        return made
    return value


def _another(x: torch.Tensor) -> torch.Tensor:
    """Return a second sample like `x`: other numbers, but the same mask and the same positions."""
    if x.dtype == torch.bool or x.numel() < 2:
        return x
    if not x.is_floating_point():
        flat = x.flatten()
        return x if bool((flat[1:] >= flat[:-1]).all()) else x.flip(-1)
    if len(set(x.flatten()[:4096].tolist())) <= 2 or not bool(x.isfinite().all()):
        return x  # a mask in numbers
    return x.roll(1, dims=1).flip(-1)
