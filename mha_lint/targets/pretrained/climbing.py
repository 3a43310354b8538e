"""Search by errors: of the changes to a try that failed, follow the one that comes furthest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

Progress = tuple[int, int, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How far a try came: its stage, the classes of modules
    that ran, and how many modules did. ``error`` None: it worked."""

    tried: T
    progress: Progress
    error: Exception | None = None
    value: Any = None


def climb(
    start: T,
    attempt: Callable[[T], Outcome[T]],
    changes: Callable[[Outcome[T]], Iterable[T]],
    *,
    tries: int,
    seconds: float,
) -> Outcome[T]:
    """Return the first outcome without an error, else the one that came furthest."""
    deadline = time.monotonic() + seconds
    best = attempt(start)
    seen = {start}
    while best.error is not None:
        improved: Outcome[T] | None = None
        for change in changes(best):
            if change in seen:
                continue
            if len(seen) >= tries or time.monotonic() > deadline:
                return improved or best
            seen.add(change)
            outcome = attempt(change)
            if outcome.error is None:
                return outcome
            if outcome.progress > (improved or best).progress:
                improved = outcome
                if outcome.progress[0] > best.progress[0]:
                    break
            elif improved is None and _elsewhere(outcome, best):
                improved = outcome
        if improved is None:
            return best
        best = improved
    return best


def _elsewhere(outcome: Outcome[Any], best: Outcome[Any]) -> bool:
    """Tell whether there is another error as far along: it may be the next one."""
    return outcome.progress == best.progress and str(outcome.error) != str(best.error)


class Counted:
    """Counts the modules that finish within the block, and their classes."""

    def __enter__(self) -> Counted:
        """Start to count."""
        self.calls = 0
        self.kinds: set[type] = set()
        hook = torch.nn.modules.module.register_module_forward_hook
        self._handle = hook(lambda module, _a, _o: self._more(type(module)))
        return self

    def __exit__(self, *_: object) -> None:
        """Stop counting."""
        self._handle.remove()

    def _more(self, kind: type) -> None:
        self.calls += 1
        self.kinds.add(kind)
