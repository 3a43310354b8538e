"""The other branches of a subject: each flag of its constructor flipped, each optional input given.

What a default switches off (a cache, a mask, ``batch_first=True``) is never seen otherwise.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from mha_lint.targets.current_sizes import batch_of, build_expression, read_sizes
from mha_lint.targets.infer.bodies import parameters_of
from mha_lint.targets.infer.guesses import render_input
from mha_lint.targets.infer.input_names import CACHE, CROSS, MASK
from mha_lint.targets.infer.inputs import Inputs
from mha_lint.targets.infer.module_needs import module_dtype
from mha_lint.targets.infer.scheme import SCHEMES, Scheme
from mha_lint.targets.infer.search import Search
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.make import FileMaker, StageError
from mha_lint.targets.sizes import bound_arguments, with_argument
from mha_lint.targets.subject import Recipe, Subject
from mha_lint.targets.tensors import tensors_in
from mha_lint.targets.timelimit import TimeLimitError, time_limit

MOST = 8
OPTIONS = 6
"""Ways to make an optional input that are tried."""
SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Variation:
    """``label``: "batch_first=True" or "mask given"; the subject has been called once."""

    label: str
    subject: Subject


def variations(subject: Subject) -> Iterator[Variation]:
    """Yield `subject` with one constructor flag flipped or one optional input given, where it runs."""
    maker = subject.maker
    if isinstance(maker, FileMaker):
        yield from itertools.islice(_all(maker, subject), MOST)


def _all(maker: FileMaker, subject: Subject) -> Iterator[Variation]:
    for label, build in _flipped(subject):
        if (made := _called_again(maker, subject, label, build)) is not None:
            yield Variation(label, made)
    for name, calls in _given(subject).items():
        for call in calls:
            recipe = dataclasses.replace(subject.recipe, call=call)
            if (made := _tried(maker, recipe)) is not None:
                yield Variation(f"{name} given", made)
                break


def _flipped(subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield (label, build expression) for each flag, and each scale that is None."""
    with subject.environment():
        bound = bound_arguments(subject.recipe, subject.namespace)
    for name, value in bound.items():
        text: str | None = None
        if isinstance(value, bool) and name != "bias" and not name.endswith("_bias"):
            text = str(not value)
        elif value is None and role_of(name) is Role.SCALE:
            text = "0.1"
        if text is None:
            continue
        changed = with_argument(subject.build, list(bound), name, text)
        if changed is not None:
            yield f"{name}={text}", changed


def _called_again(maker: FileMaker, subject: Subject, label: str, build: str) -> Subject | None:
    """Build anew and call as before, or, where another layout is due, as can be inferred."""
    as_before = Recipe(build, subject.call, subject.how)
    moves_axes = label.startswith("batch_first")
    if not isinstance(subject.module, nn.Module) or not moves_axes:
        made = _tried(maker, as_before)
        if made is not None or not isinstance(subject.module, nn.Module):
            return made
    try:
        with maker.environment(), time_limit(SECONDS):
            search = Search(
                maker, type(subject.module), build, time.monotonic() + SECONDS, build=build
            )
            return search.run().subject
    except TimeLimitError:
        return None


def _given(subject: Subject) -> dict[str, list[str]]:
    """Return, for each optional input that is a tensor by its name, calls that give it too."""
    target = subject.module.forward if isinstance(subject.module, nn.Module) else subject.module
    names = [
        p.name
        for p in parameters_of(target)
        if p.default is None
        and p.name not in subject.argument_names
        and any(kind.search(p.name.lower()) for kind in (MASK, CACHE, CROSS))
    ]
    if not names:
        return {}
    scheme = _scheme_of(subject)
    inputs = Inputs(subject.module, scheme, read_sizes(subject, build_expression(subject)).width)
    sizes, dtype = inputs.sizes_at(scheme), module_dtype(subject.module)
    found: dict[str, list[str]] = {}
    for name in names:
        options = [g for g in inputs.options(name) if g.text != "None"][:OPTIONS]
        found[name] = [f"{subject.call}, {name}={render_input(g, sizes, dtype)}" for g in options]
    return found


def _scheme_of(subject: Subject) -> Scheme:
    """Return a scheme with the sizes that `subject` has."""
    now = read_sizes(subject, build_expression(subject))
    scheme = SCHEMES[0]
    length = _length_of(subject) or scheme.length
    heads = now.heads or scheme.heads
    return dataclasses.replace(
        scheme,
        batch=now.batch,
        length=length,
        source=length + 4,
        heads=heads,
        kv_heads=now.kv_heads or heads,
        head_dim=now.head_dim or scheme.head_dim,
    )


def _length_of(subject: Subject) -> int | None:
    tensors = list(tensors_in(list(subject.args)))
    if not tensors or tensors[0].dim() not in (2, 3):
        return None
    _, batch_axis = batch_of(tensors)
    return int(tensors[0].shape[1 - batch_axis])


def _tried(maker: FileMaker, recipe: Recipe) -> Subject | None:
    try:
        with time_limit(SECONDS):
            return maker.make(recipe)
    except (StageError, TimeLimitError):
        return None
