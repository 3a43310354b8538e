"""Tell a construction that runs from one that runs by chance: with a single head only, or with as
many positions as a head has channels.

Code whose own forward breaks at every usual size is broken, whatever sizes hide that. Judging it at
those would call it clean, or name a fault that it does not have.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from mha_lint.model.source import Span
from mha_lint.targets.infer.construct import Constructor
from mha_lint.targets.infer.guesses import InputGuess
from mha_lint.targets.infer.inputs import Inputs
from mha_lint.targets.infer.state import State
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.large import has_no_values
from mha_lint.targets.make import FileMaker, StageError, fresh, run_once
from mha_lint.targets.scene import scene_of
from mha_lint.targets.session import is_interrupt
from mha_lint.targets.subject import Subject
from mha_lint.targets.tensors import tensors_in
from mha_lint.targets.timelimit import TimeLimitError
from mha_lint.targets.widths.layout import crossed, multiplies_own_tensors, scattered, unturned

WIDTHS_AND_COUNTS = (
    Role.HEAD_DIM, Role.HEADS, Role.KV_HEADS, Role.BATCH, Role.WIDTH, Role.INNER, None,
)  # fmt: skip
"""What a number of positions equals by chance only; a number of another role may set it."""
COUNTS = (Role.HEADS, Role.KV_HEADS, Role.LAYERS)
"""Of what code has to work with more than one."""
GUESSED_WIDTHS = (Role.WIDTH, Role.HEAD_DIM, Role.INNER, None)
"""Guessed arguments of which two may contradict each other through no fault of the code."""


@dataclasses.dataclass(frozen=True, slots=True)
class First:
    """The failure of the first guess at one set of sizes, and the expressions tried."""

    failure: StageError
    build: str
    call: str

    @property
    def error(self) -> BaseException:
        """Return what user code raised."""
        return self.failure.error


def only_sizes_differ(state: State, inputs: Inputs, constructor: Constructor | None) -> bool:
    """Tell whether `state` is the first guess again, at other sizes and in nothing else."""
    first = {name: inputs.options(name)[0] for name in inputs.required()}
    chosen = dict(state.inputs or ())
    if chosen.keys() != first.keys():
        return False
    if not all(_alike(chosen[name], guess) for name, guess in first.items()):
        return False
    guesses = constructor.first(state.scheme) if constructor is not None else {}
    return all(
        text.isdigit() and guesses.get(name, text).isdigit() for name, text in state.arguments
    )


def _alike(guess: InputGuess, first: InputGuess) -> bool:
    if guess == first:
        return True
    return (
        guess.kind == first.kind
        and len(guess.axes) == len(first.axes)
        and all(a == b or isinstance(a, int) for a, b in zip(guess.axes, first.axes, strict=True))
    )


def reduced_to_one(state: State, constructor: Constructor | None) -> str | None:
    """Return the argument that the search set to one head or layer where it had guessed several."""
    if constructor is None:
        return None
    guesses = constructor.guesses(state.scheme)
    for name, text in state.arguments:
        guess = guesses.get(name)
        if guess is not None and guess.role in COUNTS and text == "1" != guess.options[0]:
            return name
    return None


def fails_at_any_size(error: BaseException, home: str) -> Span | None:
    """Return the line of an error that no honest sizes avoid: how the tensors lie is wrong."""
    scene = scene_of(error, home)
    if scene is None:
        return None
    told = scattered(scene, error, str(error)) or unturned(scene, error, str(error))
    return told.span if told is not None else None


def breaks_when_longer(maker: FileMaker, subject: Subject) -> BaseException | None:
    """Return the error of the same call with one position more, where keys were not transposed.

    Asked only where the length equals a number that the module keeps, as its head_dim: then such
    code runs, and seems to split its heads wrongly.
    """
    tensors = [t for t in tensors_in((subject.args, subject.kwargs)) if _is_sequence(t)]
    parts = subject.module.modules() if isinstance(subject.module, nn.Module) else ()
    kept = {v for part in parts for v in vars(part).values() if type(v) is int}
    lengths = {t.shape[1] for t in tensors} & kept
    if not lengths:
        return None

    def longer(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and _is_sequence(value) and value.shape[1] in lengths:
            return torch.cat([value, value[:, :1]], dim=1)
        return value

    try:
        module = maker.build(subject.build)  # a call may change the one that will be recorded
        with torch.no_grad():
            module(
                *map(longer, fresh(subject.args)),
                **{name: longer(value) for name, value in fresh(subject.kwargs).items()},
            )
    except TimeLimitError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        scene = scene_of(error, maker.loaded.home)
        turned = scene is not None and unturned(scene, error, str(error)) is not None
        return error if turned else None
    return None


def _is_sequence(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 3 and tensor.is_floating_point()


def fails_but_for(
    length: int, error: BaseException, home: str, sizes: dict[str, int], named: dict[str, int]
) -> Span | None:
    """Return the line of a product of tensors that fits at `length` positions only, by chance.

    `sizes`: lengths of the axis symbols. `named`: the numbers of the construction, of which one
    that is as large may be what sets the length.
    """
    scene = scene_of(error, home)
    if scene is None or length not in (sizes["d"], sizes["h"], sizes["B"]):
        return None
    if any(n == length and role_of(k) not in WIDTHS_AND_COUNTS for k, n in named.items()):
        return None
    told = crossed(scene, error, str(error))
    return told.span if told is not None and multiplies_own_tensors(scene) else None


def widths_guessed(state: State, constructor: Constructor | None) -> int:
    """Count the guessed arguments that are widths, or of which nothing is known."""
    if constructor is None:
        return 0
    return sum(g.role in GUESSED_WIDTHS for g in constructor.guesses(state.scheme).values())


def has_nan(subject: Subject) -> bool:
    """Tell whether the output holds a NaN, or none comes at a second call."""
    try:
        output = run_once(subject)
    except StageError:
        return True
    tensors = [t for t in tensors_in(output) if t.is_floating_point() and not has_no_values(t)]
    return any(bool(t.isnan().any()) for t in tensors)
