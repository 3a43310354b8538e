"""Wake up what defaults put to sleep: one head hides how heads are split, no dropout where it acts, a
flag that is off the attention itself.

A class with ``num_heads=1`` or ``dropout=0.0`` by default is right at these values whatever its
code does at others. Where its construction was inferred, it is built once more with values that
people use.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from mha_lint.targets.infer.guarded import waking_flags
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.make import FileMaker, StageError
from mha_lint.targets.sizes import bound_arguments, with_argument
from mha_lint.targets.subject import Recipe, Subject

HEADS = ("4", "2", "3")
RATE = "0.1"


def livelier(maker: FileMaker, subject: Subject) -> Subject:
    """Return `subject` with several heads and a dropout where its defaults have none.

    The subject itself comes back when nothing sleeps, or when nothing else runs.
    """
    for options in _kinds(subject):
        made = next(filter(None, (_made(maker, subject, one) for one in options)), None)
        if made is not None:
            subject = made
    return subject


def _made(maker: FileMaker, subject: Subject, changes: dict[str, str]) -> Subject | None:
    recipe = _recipe(subject, changes)
    if recipe is None:
        return None
    try:
        made = maker.evaluate(recipe)
    except StageError:  # values that the user's code does not take
        return None
    told = ", ".join(f"{name}={value}" for name, value in changes.items())
    made.notes = (*subject.notes, f"built with {told} in place of the default")
    return made


def _kinds(subject: Subject) -> Iterator[list[dict[str, str]]]:
    """Yield the arguments to set, one kind after the other; of each, the first that runs is kept."""
    yield [{flag: "True"} for flag in _flags(subject)]
    asleep = _asleep(subject)
    heads = [name for name, role in asleep.items() if role is Role.HEADS]
    rates = [name for name, role in asleep.items() if role is Role.RATE]
    if heads:
        yield [{heads[0]: number} for number in HEADS]
    if rates:
        yield [dict.fromkeys(rates, RATE)]


def _flags(subject: Subject) -> list[str]:
    """Return the flags that are off by default, without which nothing attends."""
    made = type(subject.module)
    waking = waking_flags(made)
    try:
        parameters = inspect.signature(made).parameters if waking else {}
    except (TypeError, ValueError):
        return []
    return [name for name, p in parameters.items() if name in waking and p.default is False]


def _asleep(subject: Subject) -> dict[str, Role]:
    """Return the arguments that have a default of one head or of no dropout, by their role."""
    bound = bound_arguments(subject.recipe, subject.namespace)
    try:
        parameters = inspect.signature(type(subject.module)).parameters
    except (TypeError, ValueError):
        return {}
    found: dict[str, Role] = {}
    for name, parameter in parameters.items():
        default, role = parameter.default, role_of(name)
        if name not in bound or bound[name] != default or isinstance(default, bool):
            continue
        one_head = role is Role.HEADS and default == 1
        no_rate = role is Role.RATE and default == 0 and isinstance(default, int | float)
        if (one_head or no_rate) and role is not None:
            found[name] = role
    return found


def _recipe(subject: Subject, changes: dict[str, str]) -> Recipe | None:
    build: str | None = subject.recipe.build
    try:
        parameters = list(inspect.signature(type(subject.module)).parameters)
    except (TypeError, ValueError):
        return None
    already = bound_arguments(subject.recipe, subject.namespace)
    for name, value in changes.items():
        if str(already.get(name)) == value or build is None:
            return None
        build = with_argument(build, parameters, name, value)
    return Recipe(build, subject.recipe.call, subject.recipe.how) if build else None
