"""Lengths that an error tells indirectly: by a number of elements, or by a length that is one off."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

from mha_lint.targets.infer.errors import Failure
from mha_lint.targets.infer.inputs import Inputs
from mha_lint.targets.infer.state import State

Edits = Iterator[tuple[float, State]]

_RESHAPED = re.compile(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)")
LONGEST = 4096
MOST_OFF = 2
"""Positions that code puts in front of a sequence, or takes away: a class token, a mean."""


def by_elements(state: State, failure: Failure, inputs: Inputs) -> Edits:
    """Yield lengths with which a tensor has as many elements as it is reshaped to.

    Either all of the missing elements are whole rows (``x.view(b, h, w, c)`` behind a class token
    that was taken off), or the tensor has to be longer by a whole factor.
    """
    match = _RESHAPED.search(failure.message)
    if match is None:
        return
    shape, actual = [int(part) for part in match[1].split(",")], int(match[2])
    known = math.prod(side for side in shape if side > 0)
    open_ended = -1 in shape[1:]
    if shape[0] == -1:  # what is left over is the batch
        known *= state.scheme.batch
    wanted = -(-actual // known) * known if open_ended else known
    if not actual or wanted == actual:
        return
    sizes = inputs.sizes_at(state.scheme)
    for position, (name, guess) in enumerate(state.inputs or ()):
        lengths = [sizes.get(a, 1) if isinstance(a, str) else a for a in guess.axes]
        if guess.kind != "float" or not lengths:
            continue
        for axis, length in enumerate(lengths):
            row = math.prod(lengths) // length
            last = axis == len(lengths) - 1
            cost = 0.25 + 0.05 * position + (0.6 if last else 0.5 if axis == 0 else 0.0)
            found = dict.fromkeys(_longer(length, row, wanted, actual, open_ended=open_ended))
            for index, new in enumerate(found):
                if axis not in guess.edited and new != length and 0 < new <= LONGEST:
                    changed = state.with_input(name, guess.with_size(axis, new))
                    yield cost + 0.05 * index, changed
                    if guess.axes[axis] == "T":
                        scheme = dataclasses.replace(state.scheme, length=new)
                        yield cost + 0.02, dataclasses.replace(state, scheme=scheme)


def _longer(length: int, row: int, wanted: int, actual: int, *, open_ended: bool) -> Iterator[int]:
    if not open_ended and (wanted - actual) % row == 0:
        yield length + (wanted - actual) // row
    if (length * wanted) % actual == 0:
        yield length * wanted // actual
    if open_ended:
        for more in range(1, MOST_OFF + 1):
            yield length + more


def by_offset(state: State, failure: Failure) -> Edits:
    """Yield the length that fits once a few positions were put in front, or taken away.

    ``The size of tensor a (8) must match the size of tensor b (25)`` for a sequence of 7: it has to
    be 24 long.
    """
    scheme = state.scheme
    numbers = [n for n in failure.numbers if 1 < n < LONGEST][:6]
    for seen in numbers:
        off = seen - scheme.length
        for other in numbers:
            new = other - off
            if 0 < abs(off) <= MOST_OFF and other != seen and new not in (0, scheme.length):
                yield (
                    0.35,
                    dataclasses.replace(state, scheme=dataclasses.replace(scheme, length=new)),
                )


def repeated(state: State, failure: Failure, inputs: Inputs) -> Edits:
    """Yield a length of one for an input that the code repeats: it came out a whole factor longer."""
    sizes = inputs.sizes_at(state.scheme)
    numbers = [n for n in failure.numbers if 1 < n < LONGEST][:6]
    for name, guess in state.inputs or ():
        for axis, symbol in enumerate(guess.axes[:-1]):
            length = sizes.get(symbol, 1) if isinstance(symbol, str) else symbol
            longer = any(n > length > 1 and n % length == 0 for n in numbers)
            if guess.kind == "float" and axis and longer and axis not in guess.edited:
                yield 0.3, state.with_input(name, guess.with_size(axis, 1))


_UNEQUAL = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)")


def by_slice(state: State, failure: Failure, inputs: Inputs) -> Edits:
    """Yield another length of an input of which a slice was too short, or ran past the end."""
    match = _UNEQUAL.search(failure.message)
    if match is None or not any(":" in line and "[" in line for line in failure.lines[:1]):
        return
    sizes = inputs.sizes_at(state.scheme)
    first, second = int(match[1]), int(match[2])
    for position, (name, guess) in enumerate(reversed(state.inputs or ())):
        for axis, symbol in enumerate(guess.axes[:-1]):
            length = sizes.get(symbol, 1) if isinstance(symbol, str) else symbol
            for new in (length + first - second, length + second - first):
                if guess.kind == "float" and axis and axis not in guess.edited and new > 0:
                    yield 0.3 + 0.05 * position, state.with_input(name, guess.with_size(axis, new))


def by_distance(state: State, failure: Failure, inputs: Inputs) -> Edits:
    """Yield tables of positions with a row for each distance that two positions can have."""
    if "must match" not in failure.message and "invalid for input" not in failure.message:
        return
    same = dataclasses.replace(state.scheme, source=state.scheme.length)
    for name, guess in state.inputs or ():
        for option in inputs.options(name):
            if "R" in option.axes and "R" not in guess.axes:
                changed = state.with_input(name, option)
                yield 0.25, changed
                if same != state.scheme:
                    yield 0.27, dataclasses.replace(changed, scheme=same)
