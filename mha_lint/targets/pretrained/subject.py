"""A model of a config as a subject: a small copy that can be made again, and the whole without weights."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mha_lint.model.target import TargetSpec
from mha_lint.targets.guard import guarded
from mha_lint.targets.large import WithoutLarge
from mha_lint.targets.live.snapshot import place_of
from mha_lint.targets.live.subject import shown
from mha_lint.targets.make import MadeOnce, StageError, fresh, parameters_of
from mha_lint.targets.pretrained.building import build
from mha_lint.targets.pretrained.calling import inputs_of
from mha_lint.targets.pretrained.parts import part_of
from mha_lint.targets.pretrained.shrinking import CannotShrinkError, ShrunkConfig, shrunk
from mha_lint.targets.sizes import sizes_of, stated_of
from mha_lint.targets.subject import Decoupled, Maker, Recipe, Subject, names_of

TOO_LARGE = "the model is too large to be made again"


@dataclass(frozen=True, slots=True)
class ConfigMaker(Maker):
    """Makes the small model of one config, at its first or its second size."""

    spec: TargetSpec
    config: Any
    small: ShrunkConfig
    others: list[ShrunkConfig] = field(default_factory=list)

    def recipe(self) -> Recipe:
        """Return build and call in words."""
        given = ", ".join(f"{n}={shown(v)}" for n, v in self.small.kwargs.items())
        return Recipe(type(self.small.model).__name__, given, "stated")

    def make(self, recipe: Recipe) -> Subject:
        """Build the small model again, from the same seed.

        Raises:
            StageError: `recipe` is another one than the config's own.
        """
        return self._made(recipe, self.small)

    def build(self, expression: str) -> Any:
        """Return the small model alone.

        Raises:
            StageError: `expression` builds something else.
        """
        if expression != self.recipe().build:
            raise StageError("build", ValueError(f"{expression}: the config makes the model"))
        with self.environment():
            return part_of(build(self.small.config), self.small.part)

    def _made(self, recipe: Recipe, small: ShrunkConfig) -> Subject:
        if recipe != self.recipe():
            raise StageError("build", ValueError("the config makes the model and its call"))
        with self.environment():
            model = part_of(build(small.config), small.part)
        return _subject(self.spec, model, small, recipe, self)

    def first(self) -> Subject:
        """Return the small model that was built to find its size."""
        return _subject(self.spec, self.small.model, self.small, self.recipe(), self)

    def resized(self, subject: Subject) -> Iterator[Subject]:
        """Yield the model at a second small size."""
        if not self.others:
            try:
                with self.environment():
                    self.others.append(shrunk(self.config, variant=1))
            except CannotShrinkError:
                return
        other = self.others[0]
        yield _subject(self.spec, other.model, other, subject.recipe, self)

    def decoupled(self, subject: Subject) -> list[Decoupled]:
        """Return nothing: the numbers of a config belong together."""
        del subject
        return []

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """Run the library's code guarded."""
        with guarded():
            yield


def _subject(
    spec: TargetSpec, model: nn.Module, small: ShrunkConfig, recipe: Recipe, maker: Maker | None
) -> Subject:
    span, name = place_of(model)
    numbers = {"config": getattr(model, "config", None) if small.part else small.config}
    return Subject(
        spec=spec,
        name=name,
        span=span,
        module=model,
        args=fresh(small.args),
        kwargs=fresh(small.kwargs),
        argument_names=names_of(small.args, small.kwargs, parameters_of(model)),
        recipe=recipe,
        namespace={"torch": torch, "nn": nn},
        sizes=sizes_of(numbers),
        stated=stated_of(numbers),
        notes=small.notes,
        maker=maker,
        made_up=True,
    )


def whole(spec: TargetSpec, config: Any, small: ShrunkConfig | None, mode: WithoutLarge) -> Subject:
    """Return the model of `config` at its own size, its large weights without values, made in `mode`.

    It is called as the small one was, where there is one.

    Raises:
        NoInputsError: no call of it was found.
    """
    if small is not None and small.architecture:
        config = copy.deepcopy(config)
        config.architectures = [small.architecture]
    with guarded(), mode:
        model = part_of(build(config), small.part if small is not None else "")
    if small is not None:
        args, kwargs = small.args, small.kwargs
    else:
        with guarded(), mode:
            args, kwargs = inputs_of(model, config)
    own = ShrunkConfig(config, (), model, args, kwargs)
    return _subject(
        spec, model, own, Recipe(type(model).__name__, "", "stated"), MadeOnce(TOO_LARGE)
    )
