"""Calls that pass one mask in the place of two: which of them acts where cannot be told from them."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mha_lint.capture import Replay, record
from mha_lint.facts.bench import FEW, Bench
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

_KNOWN: WeakKeyDictionary[Replay, Bench | None] = WeakKeyDictionary()


def in_one_call(subject: Subject, bench: Bench, site: Site) -> tuple[Bench, Site]:
    """Return bench and site of the same call with a copy for each mask that is passed twice."""
    if not _twice(subject):
        return bench, site
    if bench.replay not in _KNOWN:
        _KNOWN[bench.replay] = _recorded_anew(subject, bench)
    anew = _KNOWN[bench.replay]
    place = next((i for i, s in enumerate(bench.sites) if s is site), None)
    if place is None or anew is None:
        return bench, site
    return anew, anew.sites[place]


def _recorded_anew(subject: Subject, bench: Bench) -> Bench | None:
    """Return the same call with copies, None where that gives other sites."""
    seen: set[int] = set()
    args = tuple(_copied(a, seen) for a in subject.args)
    kwargs = {k: _copied(v, seen) for k, v in subject.kwargs.items()}
    try:
        with subject.environment():
            recording = record(subject.module, args, kwargs, argument_names=subject.argument_names)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None
    anew = Bench.of(recording)
    return anew if len(anew.sites) == len(bench.sites) else None


def _twice(subject: Subject) -> bool:
    """Return whether a mask of yes and no is passed twice."""
    masks = [id(v) for v in (*subject.args, *subject.kwargs.values()) if _is_mask(v)]
    return len(masks) != len(set(masks))


def _copied(value: Any, seen: set[int]) -> Any:
    if not _is_mask(value):
        return value
    if id(value) in seen:
        return value.clone()
    seen.add(id(value))
    return value


def _is_mask(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.dim() < 2 or value.numel() < 2:
        return False
    return value.dtype == torch.bool or len(set(value.flatten()[:64].tolist())) <= FEW
