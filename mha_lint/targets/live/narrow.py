"""A part of a large call: what holds for two samples of a few positions holds for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from mha_lint.targets.live.lengths import lengths_of, with_sizes
from mha_lint.targets.live.snapshot import Snapshot
from mha_lint.targets.make import StageError, run_once
from mha_lint.targets.subject import Subject
from mha_lint.targets.tensors import tensors_in

LARGE = 1 << 17
"""Scores of more numbers than this, over all samples, take too long to measure."""
SAMPLES = 2
LENGTH = 21
"""The longest length that is left: odd, so that no window divides it by chance."""


def narrowed(snapshot: Snapshot, subject: Subject) -> Snapshot | None:
    """Return `snapshot` with fewer samples and positions, where it is large and takes them.

    `subject` is made of `snapshot`.
    """
    done = False
    for cut in _cuts:
        if _size(snapshot) <= LARGE:
            break
        for args, kwargs in cut(snapshot):
            made = replace(snapshot, args=args, kwargs=kwargs)
            try:
                with subject.environment():
                    run_once(replace(subject, args=args, kwargs=kwargs))
            except StageError:
                continue
            snapshot, done = made, True
            break
    note = "the call was larger: a part of its inputs stands for them"
    return replace(snapshot, notes=(*snapshot.notes, note)) if done else None


_Call = tuple[tuple[Any, ...], dict[str, Any]]


def _size(snapshot: Snapshot) -> int:
    """Return about how many scores there are."""
    largest = 0
    for x in tensors_in((snapshot.args, snapshot.kwargs)):
        if x.dim() > 1:
            inner = x.shape[1:-1] if x.dim() > 2 else x.shape[1:]
            length = max(inner, default=1)
            largest = max(largest, x.shape[0] * length * length, x.numel())
    return largest


def _fewer_samples(snapshot: Snapshot) -> Iterator[_Call]:
    tensors = [x for x in tensors_in((snapshot.args, snapshot.kwargs)) if x.dim() > 1]
    batch = tensors[0].shape[0] if tensors else 0
    if batch > SAMPLES:
        yield _first(snapshot.args, batch), _first(snapshot.kwargs, batch)


def _first(value: Any, batch: int) -> Any:
    if isinstance(value, torch.Tensor):
        return value[:SAMPLES] if value.dim() and value.shape[0] == batch else value
    if type(value) in (list, tuple):
        return type(value)([_first(item, batch) for item in value])
    if type(value) is dict:
        return {key: _first(item, batch) for key, item in value.items()}
    return value


def _shorter(snapshot: Snapshot) -> Iterator[_Call]:
    lengths = lengths_of(list(tensors_in((snapshot.args, snapshot.kwargs))))
    long = [n for n in lengths if n > 2 * LENGTH]
    new = {n: LENGTH - 2 * i for i, n in enumerate(long) if LENGTH - 2 * i > 4}
    halves = {n: n // 2 for n in long}
    for cut in (new, halves, *({n: LENGTH} for n in long)):
        if cut:
            yield with_sizes(snapshot.args, cut), with_sizes(snapshot.kwargs, cut)


_cuts = (_fewer_samples, _shorter)
