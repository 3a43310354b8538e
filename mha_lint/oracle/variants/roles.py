"""Roles: whether queries, keys and values come from the projections that they should come from.

A source shared by two operands is a fault only where another one was due: x x^T x, Reformer's
shared queries and keys, and multi-query designs share on purpose. So without a due source, sharing
is reported as an observation that can confirm a finding, and is no mismatch by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from mha_lint.oracle.closeness import RELATIVE, difference, magnitude
from mha_lint.oracle.fit import Departure, Fit
from mha_lint.oracle.variants.operands import WORDS
from mha_lint.oracle.view import SiteView

PROJECTION = {"q": "the query projection", "k": "the key projection", "v": "the value projection"}


def fits(view: SiteView, level: int, thorough: bool = False, *, letter: str) -> Iterator[Fit]:
    """Yield where operand `letter` comes from, when the due source is known."""
    operand = view.operand(letter)
    if operand.source is None or operand.due is None:
        return
    left = difference(operand.source, operand.due)
    if left <= RELATIVE * magnitude(operand.source):
        yield Fit((), left, _same)
        if not thorough:
            return
    if level >= 1:
        for name, candidate in _others(view, letter):
            left = difference(operand.source, candidate)
            if left <= RELATIVE * magnitude(operand.source):
                phrase = f"{WORDS[letter]} made by {name}"
                yield Fit((Departure("roles", f"{letter} from {name}", phrase),), left, _same)


def observed(view: SiteView) -> Iterator[tuple[Departure, float]]:
    """Yield the sources that two operands share, with the largest difference between them."""
    for one, other in (("v", "k"), ("v", "q"), ("q", "k")):
        first, second = view.operand(one), view.operand(other)
        if first.due is not None or first.source is None or second.source is None:
            continue
        left = difference(first.source, second.source)
        if left <= RELATIVE * magnitude(first.source):
            name = PROJECTION[other]
            yield (
                Departure("roles", f"{one} from {name}", f"{WORDS[one]} made by {name}"),
                left,
            )


def _same(source: Tensor) -> Tensor:
    return source


def _others(view: SiteView, letter: str) -> Iterator[tuple[str, Tensor]]:
    for other in "qkv":
        operand = view.operand(other)
        source = operand.source if operand.due is None else operand.due
        if other != letter and source is not None:
            yield PROJECTION[other], source
    yield from view.data.named_sources.items()
