"""Search by errors: of the tries that failed, change first the one that came furthest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

Progress = tuple[int, int, int, tuple[int, ...]]
T = TypeVar("T")
AIMED = 3
"""The first changes answer the error itself: one of them after which there is another error, no
less far along, is followed at once."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How far a try came: its stage, the classes of modules that ran, how many modules did, and
    the lines of the model's code where it stopped. ``error`` None: it worked."""

    tried: T
    progress: Progress
    error: Exception | None = None
    value: Any = None

    @property
    def ending(self) -> tuple[Progress, str]:
        """Return how it ended: of tries that end alike, one is changed further."""
        return self.progress, str(self.error)


def climb(
    start: T,
    attempt: Callable[[T], Outcome[T]],
    changes: Callable[[Outcome[T]], Iterable[T]],
    *,
    tries: int,
    seconds: float,
) -> Outcome[T]:
    """Return the first outcome without an error, else the one that came furthest.

    ``changes``: the likeliest first. ``seconds``: of this thread's own work, so that another load
    on the machine changes nothing.
    """
    deadline = time.thread_time() + seconds
    best = attempt(start)
    if best.error is None:
        return best
    seen, lowest, highest = {start}, best.progress, (best.progress, 0)
    endings = {best.ending}
    waiting = [(best, iter(changes(best)), 0)]
    while waiting:
        index = max(range(len(waiting)), key=lambda i: (waiting[i][0].progress, waiting[i][2]))
        current, left, rank = waiting[index]
        aims = len(seen) + AIMED
        for change in left:
            if change in seen:
                continue
            if len(seen) >= tries or time.thread_time() > deadline:
                return best
            seen.add(change)
            outcome = attempt(change)
            if outcome.error is None:
                return outcome
            if outcome.ending in endings:
                continue
            endings.add(outcome.ending)
            aimed = len(seen) <= aims and outcome.progress >= current.progress
            own = rank + 1 if aimed else 0
            if (outcome.progress, own) > highest:
                best, highest = outcome, (outcome.progress, own)
            if outcome.progress >= lowest:
                waiting.append((outcome, iter(changes(outcome)), own))
            if aimed or outcome.progress[0] > current.progress[0]:
                break  # the rest of the changes waits
        else:
            waiting.pop(index)
    return best


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
