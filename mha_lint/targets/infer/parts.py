"""Inputs that hold several tensors: other kinds of their parts, and other lengths of all of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from mha_lint.targets.infer.errors import Failure
from mha_lint.targets.infer.guesses import InputGuess
from mha_lint.targets.infer.inputs import Inputs
from mha_lint.targets.infer.state import State

Edits = Iterator[tuple[float, State]]

_TENSORS = ("float", "ids", "true")
_WAYS = (
    InputGuess("ids", ("B",), high=5),
    InputGuess("ids", ("B", "T"), high=5),
    InputGuess("float", ("B", "T")),
    InputGuess("float", ("B",)),
    InputGuess("float", ("B", "D")),
    InputGuess("float", ("B", "T", "D")),
)
LONGEST = 5000


def by_part(state: State, failure: Failure, inputs: Inputs) -> Edits:
    """Yield states in which the parts of a dict, an object, a tuple or a list are others."""
    sizes = inputs.sizes_at(state.scheme)
    numbers = [n for n in failure.numbers if 1 < n < LONGEST][:6]
    wanted = {"indices", "Long", "Int"} & set(failure.message.replace(",", " ").split())
    for name, guess in state.inputs or ():
        if not guess.parts or not all(p.kind in _TENSORS for p in guess.parts):
            continue
        key = failure.error.args[0] if isinstance(failure.error, KeyError) else None
        if isinstance(key, str) and guess.kind == "dict" and key not in guess.keys:
            keys, parts = (*guess.keys, key), (*guess.parts, guess.parts[-1])
            yield 0.05, state.with_input(name, dataclasses.replace(guess, keys=keys, parts=parts))
        ways = sorted(_WAYS, key=lambda w: w.kind != "ids") if wanted else _WAYS
        for index, way in enumerate(ways):
            cost = (0.2 if wanted else 0.5) + 0.1 * index
            if guess.kind in ("dict", "object"):
                yield cost, state.with_input(name, _with_parts(guess, [way] * len(guess.parts)))
                for place, part in enumerate(guess.parts):
                    if part.kind != way.kind or len(part.axes) != len(way.axes):
                        parts_now = list(guess.parts)
                        parts_now[place] = way
                        yield cost + 0.3, state.with_input(name, _with_parts(guess, parts_now))
        for old, new in itertools.permutations(numbers, 2):  # several parts joined are too wide
            changed = [_narrowed(p, old, new, sizes) for p in guess.parts]
            if changed != list(guess.parts):
                yield 0.35, state.with_input(name, _with_parts(guess, changed))
        for new in numbers:
            for axis in range(max(len(p.axes) for p in guess.parts)):
                changed = [
                    p.with_size(axis, new) if axis < len(p.axes) and axis not in p.edited
                    and _length(p, axis, sizes) in numbers else p
                    for p in guess.parts
                ]  # fmt: skip
                if changed != list(guess.parts):
                    yield 0.4, state.with_input(name, _with_parts(guess, changed))


def _narrowed(part: InputGuess, old: int, new: int, sizes: dict[str, int]) -> InputGuess:
    last = len(part.axes) - 1
    count, rest = divmod(old, max(_length(part, last, sizes), 1)) if last >= 0 else (0, 1)
    if rest or count < 2 or new % count or new == old or last in part.edited:
        return part
    return part.with_size(last, new // count)


def _with_parts(guess: InputGuess, parts: list[InputGuess]) -> InputGuess:
    return dataclasses.replace(guess, parts=tuple(parts))


def _length(part: InputGuess, axis: int, sizes: dict[str, int]) -> int:
    symbol = part.axes[axis]
    return sizes.get(symbol, 1) if isinstance(symbol, str) else symbol
