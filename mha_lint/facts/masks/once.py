"""Measure each thing of a recording once: several questions about a mask rest on the same answers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from mha_lint.capture import Replay
from mha_lint.facts.bench import Bench
from mha_lint.sites.site import Site

P = ParamSpec("P")
T = TypeVar("T")

_KNOWN: WeakKeyDictionary[Replay, dict[Any, Any]] = WeakKeyDictionary()


def once(measure: Callable[Concatenate[Bench, P], T]) -> Callable[Concatenate[Bench, P], T]:
    """Make `measure` keep its results as long as the replay of the bench lives."""

    @functools.wraps(measure)
    def kept(bench: Bench, /, *args: P.args, **kwargs: P.kwargs) -> T:
        known = _KNOWN.setdefault(bench.replay, {})
        named = tuple((name, _key(value)) for name, value in sorted(kwargs.items()))
        key = (measure.__module__, measure.__name__, tuple(map(_key, args)), named)
        if key not in known:
            known[key] = measure(bench, *args, **kwargs)
        found: T = known[key]
        return found

    return kept


def _key(value: object) -> object:
    return id(value) if isinstance(value, Site) else value
