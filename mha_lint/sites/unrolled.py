"""Loops that a recording holds unrolled: what holds for its first and last steps holds for the others.

A recurrence over positions is a chain of products at one place of the source. Each reads all that
came before it, so that every pair of them would have to be measured.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from torch.fx import Node

from mha_lint.sites.dependence import stack_of

MANY = 8
"""Products at one place from which on they are steps of a loop."""
ENDS = 2
"""Steps that are looked at from either end."""

_Step = TypeVar("_Step")


def place(node: Node) -> Hashable:
    """Return where in the user's source, and in which module, `node` was computed."""
    return (str(node.meta.get("module", "")), *(frame.span for frame in stack_of(node)))


def few_of_each(found: list[_Step], node_of: Callable[[_Step], Node], value: Node) -> list[_Step]:
    """Return of the candidates `found` for the scores behind `value` those that are worth a try.

    Of many at one place the first and the last ones; of those at the place of `value` itself, which
    are earlier steps of its own loop, none.
    """
    if len(found) <= MANY:
        return found
    kept: set[int] = set()
    for where, steps in _by_place(range(len(found)), lambda i: node_of(found[i])).items():
        if len(steps) <= MANY:
            kept.update(steps)
        elif where != place(value):
            kept.update(_ends(steps))
    return [one for i, one in enumerate(found) if i in kept]


def without_barren(
    found: list[_Step], node_of: Callable[[_Step], Node], holds: Callable[[_Step], bool]
) -> Iterator[_Step]:
    """Yield of `found`, in order, all but those of a loop whose first and last steps do not hold."""
    barren: set[int] = set()
    for steps in _by_place(range(len(found)), lambda i: node_of(found[i])).values():
        if len(steps) > MANY and not any(holds(found[i]) for i in _ends(steps)):
            barren.update(steps)
    yield from (one for i, one in enumerate(found) if i not in barren)


def _by_place(numbers: Iterable[int], node_of: Callable[[int], Node]) -> dict[Hashable, list[int]]:
    placed: dict[Hashable, list[int]] = {}
    for number in numbers:
        placed.setdefault(place(node_of(number)), []).append(number)
    return placed


def _ends(steps: list[int]) -> list[int]:
    return [*steps[:ENDS], *steps[-ENDS:]]
