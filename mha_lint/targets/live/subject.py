"""A subject made of a snapshot: each time it is asked for, a copy of what the program called."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from mha_lint.model.target import TargetSpec
from mha_lint.targets.guard import repeated
from mha_lint.targets.large import is_large, mode_of
from mha_lint.targets.live.lengths import shortened
from mha_lint.targets.live.snapshot import Snapshot
from mha_lint.targets.make import SEED, StageError, fresh, in_eval_mode, run_once
from mha_lint.targets.sizes import sizes_of, stated_of
from mha_lint.targets.stacks import Shortening
from mha_lint.targets.subject import Decoupled, Maker, Recipe, Subject

MOST_SHOWN = 6


def live_subject(
    snapshot: Snapshot, *, text: str | None = None, expect: tuple[str, ...] = ()
) -> Subject:
    """Return the subject of `snapshot`, in eval mode, called once.

    Raises:
        StageError: the call fails when it is made again.
    """
    spec = TargetSpec(
        text=text or f"{snapshot.span.path}::{snapshot.name}",
        path=snapshot.span.path,
        qualname=snapshot.name,
        expect=expect,
        line=snapshot.span.line,
    )
    maker = LiveMaker(spec, snapshot)
    return maker.make(maker.recipe())


@dataclass(frozen=True, slots=True)
class LiveMaker(Maker):
    """Makes the subject of one snapshot again."""

    spec: TargetSpec
    snapshot: Snapshot

    def recipe(self) -> Recipe:
        """Return build and call in words: they are copied, not evaluated."""
        return Recipe(self.snapshot.name, shown_call(self.snapshot), "live")

    def make(self, recipe: Recipe) -> Subject:
        """Return the subject on new copies.

        Raises:
            StageError: the call fails, or `recipe` is another one than the program's own.
        """
        with self.environment():
            return self._made(recipe, self.snapshot.args, self.snapshot.kwargs)

    def build(self, expression: str) -> Any:
        """Return a copy of the module.

        Raises:
            StageError: `expression` builds something else.
        """
        own = self.snapshot.module
        if expression != self.snapshot.name:
            error = ValueError(f"{expression}: the program made the module, and it is only copied")
            raise StageError("build", error)
        torch.manual_seed(SEED)
        made = own
        if not (isinstance(own, nn.Module) and is_large(own)):
            # Whatever user classes raise: then it is shared.
            with contextlib.suppress(Exception), torch.no_grad():
                made = copy.deepcopy(own)
        if isinstance(made, nn.Module):
            in_eval_mode(made)
        return made

    def _made(self, recipe: Recipe, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Subject:
        module = self.build(recipe.build)
        if recipe.call != shown_call(self.snapshot):
            raise StageError("arguments", ValueError("the program's own arguments are only copied"))
        named = numbers_of(module)
        subject = Subject(
            spec=self.spec,
            name=self.snapshot.name,
            span=self.snapshot.span,
            module=module,
            args=_owned(args),
            kwargs=_owned(kwargs),
            argument_names=self.snapshot.argument_names,
            recipe=recipe,
            namespace={"torch": torch, "nn": nn},
            sizes=sizes_of(named),
            stated=stated_of(named),
            notes=self.snapshot.notes,
            maker=self,
        )
        run_once(subject)
        # The call may have changed objects among its arguments, such as caches.
        subject.args, subject.kwargs = _owned(args), _owned(kwargs)
        return subject

    def resized(self, subject: Subject) -> Iterator[Subject]:
        """Yield the same module called with shorter inputs: parts of the program's own."""
        for args, kwargs in shortened(self.snapshot.args, self.snapshot.kwargs):
            try:
                with self.environment():
                    made = self._made(subject.recipe, args, kwargs)
            except StageError:
                continue
            yield made

    def decoupled(self, subject: Subject) -> list[Decoupled]:
        """Return nothing: there is no construction whose numbers could be changed."""
        del subject
        return []

    def shortened(self, shortening: Shortening) -> Maker | None:
        """Return a maker of a copy with layers left out; None where the calls around it are judged."""
        own = self.snapshot.module
        if self.snapshot.enclosing or not isinstance(own, nn.Module) or is_large(own):
            return None
        try:
            copied = copy.deepcopy(own)
        except Exception:  # whatever user classes raise
            return None
        shortening.of(copied)
        return replace(self, snapshot=replace(self.snapshot, module=copied))

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """Let the call change and print nothing that the program would notice."""
        with repeated(), mode_of(self.snapshot.module), contextlib.ExitStack() as stack:
            for device, dtype in self.snapshot.autocast:
                stack.enter_context(torch.autocast(device, dtype))
            if self.snapshot.defaults is not None:
                dtype, place = self.snapshot.defaults
                torch.set_default_dtype(dtype)
                if place != torch.get_default_device():
                    torch.set_default_device(place)
            yield

    def enclosing(self) -> Iterator[Subject]:
        """Yield the calls around this one that can be made again."""
        for outer in self.snapshot.enclosing:
            try:
                yield live_subject(outer)
            except StageError:
                continue


def _owned(value: Any) -> Any:
    """Return a copy of `value`, objects in it included where they can be copied."""
    try:
        with torch.no_grad():
            return copy.deepcopy(value)
    except Exception:  # whatever user classes raise
        return fresh(value)


def numbers_of(module: Any) -> dict[str, Any]:
    """Return the numbers that the constructor of `module` was given, as far as it kept them.

    Integers and bools under the names of its parameters, and the configurations that it holds. No
    floats of its own: a scale that it worked out itself is what is to be judged.
    """
    if not isinstance(module, nn.Module):
        return {}
    try:
        parameters = inspect.signature(type(module).__init__).parameters
    except (TypeError, ValueError):
        return {}
    found: dict[str, Any] = {}
    for name in parameters:
        value = vars(module).get(name)
        if isinstance(value, int) or _is_configuration(value):
            found[name] = value
    return found


def _is_configuration(value: Any) -> bool:
    plain = isinstance(value, torch.Tensor | nn.Module | str | float | list | tuple | type)
    return value is not None and not plain and not callable(value)


def shown_call(snapshot: Snapshot) -> str:
    """Return the arguments in words: ``x=(2, 10, 64), mask=None``."""
    values = (*snapshot.args, *snapshot.kwargs.values())
    words = [
        f"{name}={shown(value)}"
        for name, value in zip(snapshot.argument_names, values, strict=True)
        if value is not None
    ]
    more = len(words) - MOST_SHOWN
    return ", ".join(words[:MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def shown(value: Any) -> str:
    """Return an argument in words: the sizes of a tensor, a number as it is."""
    if isinstance(value, torch.Tensor):
        return str(tuple(value.shape))
    if isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, list | tuple) and len(value) <= 3:
        return f"({', '.join(shown(v) for v in value)})"
    return type(value).__name__
