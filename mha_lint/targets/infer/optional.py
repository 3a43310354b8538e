"""Optional constructor arguments that an error asks for, each with what it costs to try.

A default may be a place holder (``pos_enc=None`` that is called), contradict the sizes that were
guessed (``kernels=(5, 5, 5, 5)`` beside eight heads), or switch on code that does not run.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from mha_lint.targets.infer.construct import Constructor
from mha_lint.targets.infer.errors import Failure
from mha_lint.targets.infer.scheme import Scheme
from mha_lint.targets.infer.uses import Evidence
from mha_lint.targets.infer.vocabulary import Role

Settings = Iterator[tuple[float, str, str]]

_SIZES = (
    Role.HEADS, Role.KV_HEADS, Role.HEAD_DIM, Role.WINDOW, Role.SIDE, Role.LENGTH, Role.WIDTH,
    Role.GROUPS, Role.LAYERS,
)  # fmt: skip
_HEADS = (Role.HEADS, Role.KV_HEADS, Role.HEAD_DIM)
_NOT_SIZES = (TypeError, NameError, AttributeError, NotImplementedError, ImportError)
"""Errors that are about no sizes: code behind a flag that raises one does not run at any."""


def optional_settings(
    constructor: Constructor,
    failure: Failure,
    scheme: Scheme,
    *,
    built: bool,
    chosen: tuple[tuple[str, str], ...] = (),
) -> Settings:
    """Yield optional constructor arguments to try after `failure`: cost, name and expression.

    `built`: the module could be built, and its call failed. `chosen`: arguments that were changed.
    """
    parts = any(text.endswith(")") for _, text in chosen)  # made at sizes that were guessed too
    for parameter in constructor.parameters:
        if parameter.default is parameter.empty:
            continue
        name, evidence = parameter.name, constructor.evidence.get(parameter.name, Evidence())
        named = name in failure.names
        if parameter.default is None:
            yield from _unset(constructor, parameter, failure, scheme, built=built)
        elif (not built or parts) and type(parameter.default) is int:
            guess = constructor.guess(parameter, scheme)
            if guess.role in (_HEADS if built else _SIZES):
                for index, option in enumerate(guess.options):
                    if option != str(parameter.default):
                        yield (0.6 if named else 0.9) + 0.3 * index, name, option
        if name in failure.conditions and isinstance(failure.error, _NOT_SIZES):
            yield from _switched(parameter, evidence)


def _unset(
    constructor: Constructor,
    parameter: inspect.Parameter,
    failure: Failure,
    scheme: Scheme,
    *,
    built: bool,
) -> Settings:
    """Yield values for an argument that was None where the error arose."""
    name = parameter.name
    evidence = constructor.evidence.get(name, Evidence())
    is_called = evidence.used_as_module or bool(evidence.calls)
    wanted = is_called and "NoneType" in failure.message
    if not wanted and name not in (*failure.missing, *failure.names):
        return
    guess = constructor.guess(parameter, scheme)
    if guess.role is not None:
        for index, option in enumerate(guess.options[: 3 if wanted else 1]):
            yield (0.3 + 0.2 * index if wanted else 1.8 if built else 0.8), name, option


def _switched(parameter: inspect.Parameter, evidence: Evidence) -> Settings:
    """Yield the other values of a flag or a choice that led to the failing line."""
    if isinstance(parameter.default, bool):
        yield 0.6, parameter.name, str(not parameter.default)
    elif isinstance(parameter.default, str):
        others = [c for c in dict.fromkeys(evidence.choices) if c != parameter.default]
        for index, choice in enumerate(others):
            yield 0.7 + 0.1 * index, parameter.name, repr(choice)


def switched_off(constructor: Constructor | None, arguments: dict[str, str]) -> str | None:
    """Return the flag among `arguments` that does not have its default, with that default."""
    for parameter in constructor.parameters if constructor is not None else ():
        text = arguments.get(parameter.name)
        if text is not None and isinstance(parameter.default, bool | str):
            return f"{parameter.name}={text} (inferred): with {parameter.default!r} it fails"
    return None
