"""Inputs that change together: masks, the two halves of a rotation, keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from mha_lint.targets.infer.errors import Failure
from mha_lint.targets.infer.input_names import QKV, ROTARY
from mha_lint.targets.infer.inputs import Inputs
from mha_lint.targets.infer.state import MASK_KINDS, State

Edits = Iterator[tuple[float, State]]

LARGEST = 5000
MOST = 6
"""Options of each input that are tried in step."""


def together(state: State, inputs: Inputs) -> Edits:
    """Yield states in which several inputs of one kind take their next option at once."""
    chosen = dict(state.inputs or ())
    masks = [n for n, g in chosen.items() if g.kind in MASK_KINDS]
    rotary = [n for n, g in chosen.items() if ROTARY.search(n.lower()) and g.kind == "float"]
    split = [n for n, g in chosen.items() if QKV.match(n.lower()) and len(g.axes) == 4]
    ids = [n for n, g in chosen.items() if g.kind == "ids"]
    for names in (masks, rotary, split, ids):
        if len(names) > 1:
            for index in range(1, MOST):
                changed = state
                for name in names:
                    options = inputs.options(name)
                    if names is split:
                        options = [o for o in options if len(o.axes) == 4]
                    changed = changed.with_input(name, options[min(index, len(options) - 1)])
                yield 0.25 + 0.08 * index, changed
    yield from _alike(state, inputs)


def by_symbol(state: State, failure: Failure, inputs: Inputs) -> Edits:
    """Yield another number of heads, or of channels of a head, in all inputs at once."""
    sizes = inputs.sizes_at(state.scheme)
    numbers = [n for n in failure.numbers if 1 < n < LARGEST][:6]
    for symbol in ("h", "d", "g", "half", "HW"):
        holding = [(n, g) for n, g in state.inputs or () if symbol in g.axes]
        for new in numbers:
            if len(holding) > 1 and sizes[symbol] in numbers and new != sizes[symbol]:
                changed = state
                for name, guess in holding:
                    changed = changed.with_input(
                        name, guess.with_size(guess.axes.index(symbol), new)
                    )
                yield 0.4, changed


def _alike(state: State, inputs: Inputs) -> Edits:
    """Give all sequences that are attended to the axes of one of them."""
    attended = {
        name: guess
        for name, guess in state.inputs or ()
        if guess.kind == "float" and "S" in guess.axes
    }
    for name, guess in attended.items():
        others = [n for n, g in attended.items() if g.axes != guess.axes]
        if others and inputs.certain_rank(name) is not None:
            changed = state
            for other in others:
                changed = changed.with_input(other, guess)
            yield 0.3, changed
