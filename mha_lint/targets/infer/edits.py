"""From an error to the changes that may help, each with what it costs to try."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator

from mha_lint.targets.infer.construct import Constructor
from mha_lint.targets.infer.entries import config_entries, is_synthetic_config
from mha_lint.targets.infer.errors import Failure, read_failure
from mha_lint.targets.infer.guesses import InputGuess
from mha_lint.targets.infer.inputs import Inputs
from mha_lint.targets.infer.lengths import (
    by_distance,
    by_elements,
    by_offset,
    by_slice,
    repeated,
)
from mha_lint.targets.infer.optional import optional_settings
from mha_lint.targets.infer.parts import by_part
from mha_lint.targets.infer.ranks import by_rank
from mha_lint.targets.infer.scheme import SCHEMES
from mha_lint.targets.infer.state import MASK_KINDS, State
from mha_lint.targets.infer.together import by_symbol, together
from mha_lint.targets.infer.vocabulary import Role

Edits = Iterator[tuple[float, State]]


def build_edits(
    constructor: Constructor | None, state: State, error: BaseException, home: str = ""
) -> Edits:
    """Yield changes of the constructor arguments after `error`."""
    if constructor is not None:
        failure = read_failure(error, home)
        yield from _by_class(constructor, state, failure)
        yield from _by_argument(constructor, state, failure)
        yield from _by_entry(constructor, state, failure)
        settings = optional_settings(constructor, failure, state.scheme, built=False)
        for cost, name, text in settings:
            yield cost, state.with_argument(name, text)


def _by_argument(constructor: Constructor, state: State, failure: Failure) -> Edits:
    guesses = constructor.guesses(state.scheme)
    entry = _missing_entry(failure)
    if entry is not None and entry not in dict(state.entries):
        text = constructor.field(entry, state.scheme)
        entries = (*state.entries, (entry, text))
        yield 0.1, dataclasses.replace(state, entries=entries)
        return
    changed = dict(state.arguments)
    for name, guess in guesses.items():
        current = changed.get(name, guess.options[0])
        blamed = name in failure.names or any(name in line for line in failure.lines)
        for index, option in enumerate(guess.options[1:], 1):
            if option != current:
                weight = 0.4 if guess.role is None else 1.0
                yield (
                    (weight + 0.3 * index) * (1 if blamed else 2),
                    state.with_argument(name, option),
                )
    if "divis" in failure.message or "%" in "".join(failure.lines[:1]):
        for index, scheme in enumerate(SCHEMES):
            yield 0.2 + 0.1 * index, dataclasses.replace(state, scheme=scheme)


def _by_class(constructor: Constructor, state: State, failure: Failure) -> Edits:
    """Yield a made-up config in place of one of the user's class that lacks what is read of it."""
    lacking = re.search(r"'(\w+)' object has no attribute '\w+'", failure.message)
    for name, guess in constructor.guesses(state.scheme).items():
        current = dict(state.arguments).get(name, guess.options[0])
        if lacking is not None and current.startswith(f"{lacking[1]}("):
            for option in filter(is_synthetic_config, guess.options):
                yield 0.1, dataclasses.replace(state.with_argument(name, option), inputs=None)


def _by_entry(constructor: Constructor, state: State, failure: Failure) -> Edits:
    """Change an entry of a made-up config: one that the failing line reads, or of a wrong size."""
    numbers = [n for n in failure.numbers if 1 < n < 5000][:6]
    parts = re.search(r"values to unpack \(expected (\d+), got 1\)", failure.message)
    for name, text in _entries(constructor, state).items():
        if parts is not None and text.startswith(("nn.Linear(", "nn.Identity(")):
            width = state.scheme.width  # of each of the parts that the result is unpacked into
            wide = f"nn.Linear({width}, {width * int(parts[1])})"
            yield 0.3, state.with_config_entry(name, wide)
        if name in failure.names:
            options = [o for o in constructor.field_options(name, state.scheme) if o != text]
            for index, option in enumerate(options[:3]):
                yield 0.6 + 0.2 * index, state.with_config_entry(name, option)
        if text.isdigit() and int(text) in numbers and name not in dict(state.entries):
            for index, new in enumerate(n for n in numbers if n != int(text)):
                cost = 0.6 + 0.1 * index + (0.2 if name in failure.names else 0.0)
                yield cost, state.with_config_entry(name, str(new))


def _entries(constructor: Constructor, state: State) -> dict[str, str]:
    """Return the entries of all made-up configs among the arguments."""
    arguments = {**constructor.first(state.scheme), **dict(state.arguments)}
    found: dict[str, str] = {}
    for text in arguments.values():
        if is_synthetic_config(text):
            found |= config_entries(text)
    return found | dict(state.entries)


def call_edits(
    constructor: Constructor | None,
    state: State,
    error: BaseException,
    inputs: Inputs,
    home: str = "",
) -> Edits:
    """Yield changes of the inputs, then of the constructor arguments, after `error`."""
    assert state.inputs is not None
    failure = read_failure(error, home)
    chosen = dict(state.inputs)
    checked = isinstance(error, AssertionError) or failure.guard
    asserted = failure.names if checked else ()
    for name in (*failure.missing, *asserted):
        if name in inputs.names and name not in chosen:
            for index, guess in enumerate(inputs.options(name)[:6]):
                cost = 0.2 if name in failure.names else 0.5
                yield cost + 0.2 * index, state.with_input(name, guess)
    yield from _by_image(state, inputs)
    yield from by_rank(state, failure, inputs)
    yield from _by_number(constructor, state, failure, inputs)
    yield from by_elements(state, failure, inputs)
    yield from by_offset(state, failure)
    yield from by_slice(state, failure, inputs)
    yield from by_distance(state, failure, inputs)
    yield from repeated(state, failure, inputs)
    yield from by_part(state, failure, inputs)
    yield from together(state, inputs)
    yield from by_symbol(state, failure, inputs)
    is_size = any(w in failure.message for w in ("must match", "broadcast", "invalid for input"))
    for position, (name, current) in enumerate(chosen.items()):
        blamed = name in failure.names
        is_mask = current.kind in MASK_KINDS
        base = 0.2 if is_mask and is_size else 0.7 + (0 if blamed else 0.5)
        rank = inputs.certain_rank(name)
        for index, guess in enumerate(inputs.options(name)[:16]):
            if guess != current:
                odd = 0.8 if rank is not None and len(guess.axes) not in (0, rank) else 0.0
                yield base + odd + 0.12 * index + 0.05 * position, state.with_input(name, guess)
    yield from _by_kind(state, failure)
    if constructor is not None:
        yield from _by_class(constructor, state, failure)
        yield from _by_guard(constructor, state, failure)
        for extra, successor in _by_argument(constructor, state, failure):
            yield 1.0 + extra, dataclasses.replace(successor, inputs=None)
        yield from _by_entry(constructor, state, failure)
        settings = optional_settings(
            constructor, failure, state.scheme, built=True, chosen=state.arguments
        )
        for extra, name, text in settings:
            yield extra, dataclasses.replace(state.with_argument(name, text), inputs=None)


def _by_guard(constructor: Constructor, state: State, failure: Failure) -> Edits:
    """Yield small numbers for what a test before a ``raise`` reads: it may be an axis."""
    current = {**constructor.first(state.scheme), **dict(state.arguments)}
    for name, text in current.items():
        if name in failure.guard and text.isdigit() and int(text) > 1:
            for index, new in enumerate(("0", "1")):
                changed = dataclasses.replace(state.with_argument(name, new), inputs=None)
                yield 0.5 + 0.1 * index, changed


def flipped_masks(state: State) -> Edits:
    """Yield each mask with the other polarity, after a call that gave NaN."""
    other = {"true": "false", "false": "true", "ones": "zeros", "zeros": "ones"}
    for name, guess in dict(state.inputs or ()).items():
        if guess.kind in other:
            yield (
                0.05,
                state.with_input(name, dataclasses.replace(guess, kind=other[guess.kind])),
            )


def _by_image(state: State, inputs: Inputs) -> Edits:
    """Make images as large as the constructor says."""
    if not any({"H", "W"} & set(guess.axes) for _, guess in state.inputs or ()):
        return
    for index, side in enumerate(inputs.images):
        scheme = dataclasses.replace(state.scheme, side=side, square=True)
        if scheme != state.scheme:
            yield 0.12 + 0.1 * index, dataclasses.replace(state, scheme=scheme)


def _by_number(
    constructor: Constructor | None, state: State, failure: Failure, inputs: Inputs
) -> Edits:
    """Change a length that the error mentions into another one that it mentions."""
    sizes = inputs.sizes_at(state.scheme)
    numbers = [n for n in failure.numbers if 1 < n < 5000][:6]
    scheme = state.scheme
    chosen = dict(state.inputs or ())
    match = re.search(r"must match except in dimension (\d)", failure.message)
    joined = int(match[1]) if match is not None else None
    if "//" in "".join(failure.lines[:1]):  # as many whole blocks as fit
        for block in numbers:
            if scheme.length % block and block not in (scheme.batch, scheme.length):
                whole = dataclasses.replace(scheme, length=3 * block)
                yield 0.2, dataclasses.replace(state, scheme=whole)
    asserted = isinstance(failure.error, AssertionError) or bool(failure.guard)
    widths = joined is None and not asserted and "invalid for input" not in failure.message
    match = re.search(r"\(\d+x(\d+) and (\d+)x\d+\)", failure.message)
    inner = {int(match[1]), int(match[2])} if match is not None else None
    for old, new in itertools.permutations(numbers, 2):
        crowded = 1.5 if new == scheme.batch else 0.0
        if scheme.source == old and scheme.length == new:
            same = dataclasses.replace(scheme, source=scheme.length)
            yield 0.15, dataclasses.replace(state, scheme=same)
        if new == old * scheme.length:  # one position at a time
            yield 0.3, dataclasses.replace(state, scheme=dataclasses.replace(scheme, length=1))
        if scheme.length == old and "%" in "".join([*failure.lines[:1], failure.message]):
            whole = dataclasses.replace(scheme, length=3 * new)
            yield 0.22, dataclasses.replace(state, scheme=whole)
        if scheme.length == old:
            longer = dataclasses.replace(scheme, length=new)
            yield 0.3 + crowded, dataclasses.replace(state, scheme=longer)
        for name, guess in chosen.items():
            actual = [sizes.get(a, 1) if isinstance(a, str) else a for a in guess.axes]
            for axis in reversed(range(len(actual))):
                is_last = axis == len(actual) - 1
                cost = (0.25 if is_last and guess.kind == "float" else 0.55) + crowded
                if joined is not None:  # the axis along which tensors are joined may differ
                    cost = (0.9 if axis == joined else 0.25) + crowded
                cost += 0.8 if axis == 0 and len(actual) > 2 else 0.0
                wanted = {new: cost}
                fits = widths and (inner is None or inner == {old, new})
                if is_last and fits and actual[axis] + new - old > 0:  # joined with something
                    wanted[actual[axis] + new - old] = 0.35 if new > old else 0.45
                for size, price in wanted.items():
                    matches = actual[axis] == old
                    if axis in guess.edited:
                        continue
                    if matches or (size != new and guess.kind == "float"):
                        yield price, state.with_input(name, guess.with_size(axis, size))
        if constructor is not None and not _made_by(new, chosen.values()):
            guesses = constructor.first(scheme)
            for argument, text in {**guesses, **dict(state.arguments)}.items():
                # Once: a product of sizes, taken for a size, would give a larger product yet.
                if text == str(old) and argument not in dict(state.arguments):
                    yield (
                        0.7 + crowded,
                        dataclasses.replace(state.with_argument(argument, str(new)), inputs=None),
                    )
    if scheme.source != scheme.length:
        same = dataclasses.replace(scheme, source=scheme.length)
        told = {scheme.source, scheme.length} & set(numbers)
        yield 0.2 if told else 0.5, dataclasses.replace(state, scheme=same)


def _made_by(number: int, inputs: Iterable[InputGuess]) -> bool:
    """Tell whether `number` is a multiple of a length that was taken from an error before."""
    edited = [guess.axes[axis] for guess in inputs for axis in guess.edited]
    return any(isinstance(n, int) and 1 < n < number and number % n == 0 for n in edited)


def _by_kind(state: State, failure: Failure) -> Edits:
    """Change dtypes where the error is about them."""
    message = failure.message.lower()
    if not any(w in message for w in ("bool", "long", "int", "dtype", "type", "indices", "index")):
        return
    for name, guess in dict(state.inputs or ()).items():
        kinds = ("true", "ones", "zeros", "false")
        if guess.kind in kinds:
            for index, kind in enumerate(kinds):
                if kind != guess.kind:
                    yield (
                        0.3 + 0.05 * index,
                        state.with_input(name, dataclasses.replace(guess, kind=kind)),
                    )
        if guess.kind == "float" and ("long" in message or "indices" in message):
            ids = InputGuess("ids", ("B", guess.axes[1] if len(guess.axes) > 1 else "T"), high=5)
            yield 0.25, state.with_input(name, ids)
        if guess.kind == "ids" and "index" in message and guess.high > 2:
            yield 0.25, state.with_input(name, dataclasses.replace(guess, high=2))


def other_configs(constructor: Constructor | None, state: State) -> Iterator[State]:
    """Yield what is left to try where a module of a user's own config takes too long to build."""
    if constructor is None:
        return
    for name, guess in constructor.guesses(state.scheme).items():
        if guess.role is Role.CONFIG and name not in dict(state.arguments):
            for option in guess.options[1:]:
                yield state.with_argument(name, option)


def _missing_entry(failure: Failure) -> str | None:
    """Return the config entry that the error says is missing."""
    patterns = (
        r"'(?:types\.)?SimpleNamespace' object has no attribute '(\w+)'",
        r"config has no entry '(\w+)'",
    )
    for pattern in patterns:
        if match := re.search(pattern, failure.message):
            return match[1]
    if isinstance(failure.error, KeyError) and failure.error.args:
        key = failure.error.args[0]
        return key if isinstance(key, str) and key.isidentifier() else None
    return None
