"""What a stage's search brings back: ways to get from the stage's input to its output.

Every stage is given the site's *own* previous stage, so that each deviation shows alone and the
search over all of them is a sum, not a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Departure:
    """One known way to depart from the definition.

    ``key``: the family that rules refer to ("softmax-axis"); ``name``: the member ("queries");
    ``phrase``: reads well after "the reference with" ("softmax over the query axis").
    """

    key: str
    name: str
    phrase: str


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """One way that reproduces a stage; without departures it is the right one.

    ``difference``: the largest that is left; ``apply``: computes the stage's output from any input
    of it; ``note``: a legitimate design that was recognised; ``rank``: among fits with equally
    many departures, the lower is the likelier reading; ``scale``: the gain that was solved.
    """

    departures: tuple[Departure, ...]
    difference: float
    apply: Callable[..., Tensor]
    note: str = ""
    rank: int = 0
    scale: Tensor | float | None = None

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Return what this fit has in common with the same reading at another size."""
        return tuple((departure.key, departure.name) for departure in self.departures)


def unique(fits: Iterable[Fit]) -> Iterator[Fit]:
    """Yield the first fit of every identity."""
    seen: set[tuple[tuple[str, str], ...]] = set()
    for fit in fits:
        if fit.identity not in seen:
            seen.add(fit.identity)
            yield fit
