"""A built module (or a function) with the arguments of one call, and how it was made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from mha_lint.model.source import Span
from mha_lint.model.target import TargetSpec
from mha_lint.targets.stacks import Shortening

How = Literal["stated", "usage", "live", "built", "inferred"]
"""Where build and call come from: the user; the file's own use of the class; a program that really
makes the call; the file's own construction, called with inferred arguments; both inferred."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Expressions that make a subject, in the namespace of the user's module.

    ``build`` makes the module, or names the function. ``call``: the arguments, as between the
    parentheses of a call.
    """

    build: str
    call: str
    how: How = "inferred"


@dataclass(frozen=True, slots=True)
class Decoupled:
    """What happened when integers that merely coincide were changed independently.

    ``change``: "width 32 -> 48, in_width stays 32". Exactly one of ``error`` and ``subject`` is set.
    ``doubtful``: what was changed need not be a width at all, by its name or its use.
    """

    change: str
    error: BaseException | None
    subject: Subject | None
    doubtful: bool = False


@dataclass(slots=True)
class Subject:
    """What capture records: ``module(*args, **kwargs)``.

    ``argument_names``: the names of the parameters that ``args`` fill, then those of ``kwargs``.
    ``sizes``: integers of the construction by parameter name or config attribute. ``stated``: every
    number or bool that was passed or has a default, by name. ``made_up``: nobody wrote the arguments
    of the call, wherever its module comes from.
    """

    spec: TargetSpec
    name: str
    span: Span
    module: nn.Module | Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    argument_names: tuple[str, ...]
    recipe: Recipe
    namespace: dict[str, Any]
    sizes: dict[str, int] = field(default_factory=dict)
    stated: dict[str, float | bool] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    other_calls: tuple[str, ...] = ()
    maker: Maker | None = None
    made_up: bool = False

    @property
    def build(self) -> str:
        """Return the expression that made the module."""
        return self.recipe.build

    @property
    def call(self) -> str:
        """Return the arguments of the call, as an expression list."""
        return self.recipe.call

    @property
    def how(self) -> How:
        """Return where build and call come from."""
        return self.recipe.how

    @property
    def real(self) -> bool:
        """Return whether the call was written by somebody who knows the code."""
        return self.recipe.how in ("stated", "usage", "live") and not self.made_up

    def rebuilt(self) -> Subject:
        """Return the same subject made anew: same seed, own parameters and inputs."""
        return self._maker().make(self.recipe)

    def remade(self, build: str) -> Subject:
        """Return the subject that another build expression makes, called with the same arguments."""
        return self._maker().make(Recipe(build, self.recipe.call, self.recipe.how))

    def with_call(self, call: str) -> Subject:
        """Return the same module made anew with other arguments (see ``other_calls``)."""
        recipe = Recipe(self.recipe.build, call, self.recipe.how)
        return self._maker().make(recipe)

    def resized(self) -> Iterator[Subject]:
        """Yield this subject at other consistent sizes, the most thorough change first."""
        return self._maker().resized(self)

    def decoupled(self) -> list[Decoupled]:
        """Change integers that have equal values independently, and say what happens."""
        return self._maker().decoupled(self)

    def enclosing(self) -> Iterator[Subject]:
        """Yield the calls that this one was seen to be made in, the innermost first."""
        if self.maker is not None:
            yield from self.maker.enclosing()

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """Run user code (calls of ``module``) guarded, with the user's modules importable."""
        with self._maker().environment():
            yield

    def _maker(self) -> Maker:
        if self.maker is None:
            raise RuntimeError(f"{self.name} was made by hand: it cannot be made again")
        return self.maker


class Maker:
    """What can make a subject again; `mha_lint.targets.make` implements it."""

    def make(self, recipe: Recipe) -> Subject:
        """Evaluate `recipe` into a subject; errors of user code pass through."""
        raise NotImplementedError

    def resized(self, subject: Subject) -> Iterator[Subject]:
        """See `Subject.resized`."""
        raise NotImplementedError

    def decoupled(self, subject: Subject) -> list[Decoupled]:
        """See `Subject.decoupled`."""
        raise NotImplementedError

    def environment(self) -> contextlib.AbstractContextManager[object]:
        """See `Subject.environment`."""
        raise NotImplementedError

    def enclosing(self) -> Iterator[Subject]:
        """See `Subject.enclosing`."""
        yield from ()

    def shortened(self, shortening: Shortening) -> Maker | None:
        """Return a maker that leaves out what `shortening` says, None if it cannot be left out."""
        del shortening
        return None


def names_of(
    args: Sequence[object], kwargs: dict[str, Any], parameters: Sequence[str]
) -> tuple[str, ...]:
    """Return the parameter names that `args` and `kwargs` fill, in that order."""
    positional = [parameters[i] if i < len(parameters) else f"args[{i}]" for i in range(len(args))]
    return (*positional, *kwargs)
