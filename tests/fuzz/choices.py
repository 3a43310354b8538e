"""Draw the parts of a case, and remember what was drawn so that it can be repeated or simplified."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Named draws; `forced` overrides some by name, and ``made`` tells what all of them were."""

    def __init__(self, draw: Callable[[int], int], forced: Mapping[str, int] | None = None) -> None:
        """Draw by `draw`, which returns a number from 0 below its argument."""
        self._draw = draw
        self._forced = dict(forced or {})
        self._seen: Counter[str] = Counter()
        self.made: dict[str, int] = {}

    @classmethod
    def random(cls, seed: int, forced: Mapping[str, int] | None = None) -> Choices:
        """Return the choices of `seed`."""
        return cls(random.Random(seed).randrange, forced)

    def pick(self, label: str, options: Sequence[T]) -> T:
        """Return one of `options`; the first should be the plainest."""
        self._seen[label] += 1
        name = f"{label}#{self._seen[label]}"
        drawn = self._draw(len(options))  # drawn in any case: what follows stays as it was
        index = min(self._forced.get(name, drawn), len(options) - 1)
        self.made[name] = index
        return options[index]

    def chance(self, label: str, one_in: int = 2) -> bool:
        """Return True once in `one_in` draws."""
        return self.pick(label, [False] * (one_in - 1) + [True])


def simplified(
    made: Mapping[str, int], fails: Callable[[Mapping[str, int]], bool], tries: int = 60
) -> dict[str, int]:
    """Return choices that still fail, with as many as possible turned into the plainest."""
    best = dict(made)
    for name in list(best):
        if best[name] and tries:
            tries -= 1
            plainer = {**best, name: 0}
            if fails(plainer):
                best = plainer
    return best
