"""Call the real module on chunks of one sequence, with and without what was cached before."""

from __future__ import annotations

import copy
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mha_lint.capture.copies import copied
from mha_lint.capture.frames import is_user_file
from mha_lint.capture.state import SEED, seeded
from mha_lint.facts.caching.arguments import CACHE, Arguments, tensors
from mha_lint.facts.caching.state import may_keep
from mha_lint.model.source import Span
from mha_lint.targets.subject import Subject

LENGTHS = ((5, 4), (2, 3))
"""Positions that are cached before the steps, and how many steps; fewer where a table is short."""
_SIZES = re.compile(
    r"Sizes of tensors must match except in dimension \d+\. Expected size (\d+) but got size (\d+)"
)
NONE = object()
"""In the place of a cache: leave the argument out."""


class NotRunError(Exception):
    """The module refused a call."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to call: ``places`` names what is told where a chunk stands, and in which form; ``start``
    makes an empty cache.

    ``words``: the empty cache in words, "" for none at all. ``whole_tables``: tables of positions
    are passed up to the chunk's end, not cut to it.
    """

    places: tuple[tuple[str, str], ...]
    start: Callable[[], dict[str, Any]]
    words: str
    mutable: bool = False
    whole_tables: bool = False


class Caller:
    """Calls copies of one module on parts of a fixed random sequence."""

    def __init__(
        self,
        subject: Subject,
        module: Any,
        arguments: Arguments,
        lengths: tuple[int, int] = LENGTHS[0],
        seed: int = 0,
    ) -> None:
        """Draw the sequence; `module` holds the weights to use.

        `lengths`: positions that are cached before the steps, and how many steps.
        """
        self.subject, self.module, self.arguments = subject, module, arguments
        self.lengths, self.cached, self.step = lengths, lengths[0], arguments.step
        self.tokens = self.cached + lengths[1] * self.step
        self._keeps = isinstance(module, nn.Module) and may_keep(module)
        self.refused = ""
        self.clash: Span | None = None
        self.sequences = {
            name: _drawn(value, axis, self.tokens, seed)
            for name, (value, axis) in arguments.sequences.items()
        }
        self.tables = {
            name: _drawn(value, axis, self.tokens, seed + 1)
            for name, (value, axis) in arguments.tables.items()
        }

    def chunks(self) -> list[tuple[int, int]]:
        """Return the first position of each step and the one behind its last."""
        return [(n, n + self.step) for n in range(self.cached, self.tokens, self.step)]

    def fresh(self) -> Any:
        """Return the module in the state that it was made in: a copy, if calls change it."""
        return copied(self.module, (), {}).subject if self._keeps else self.module

    def arguments_for(
        self, plan: Plan, first: int, end: int, past: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call on positions `first` to `end` (left out)."""
        known = self.arguments
        named: dict[str, Any] = {}
        for name, (_, axis) in known.sequences.items():
            named[name] = self.sequences[name].narrow(axis, first, end - first).clone()
        for name, (_, axis) in known.tables.items():
            begin = 0 if plan.whole_tables else first
            named[name] = self.tables[name].narrow(axis, begin, end - begin).clone()
        for name, form in plan.places:
            named[name] = _place(form, known.places[name][0], first, end)
        for name, value in known.masks.items():
            named[name] = _uniform_mask(value, end)
        named |= dict.fromkeys(known.switches, True)
        named |= {n: copied(len, (v,), {}).args[0] for n, v in known.fixed.items()}
        named |= {n: v for n, v in past.items() if v is not NONE}
        return (), named

    def run(self, module: Any, plan: Plan, first: int, end: int, past: dict[str, Any]) -> Any:
        """Return the output of `module` on positions `first` to `end`.

        Raises:
            NotRunError: the module refused.
        """
        args, named = self.arguments_for(plan, first, end, past)
        try:
            with torch.no_grad():
                seeded(SEED)
                return module(*args, **named)
        except (Exception, SystemExit) as error:
            self.refused = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            self.clash = self.clash or self._clash(error)
            raise NotRunError(self.refused) from error

    def _clash(self, error: BaseException) -> Span | None:
        """Return the user's line that joins past and present along another axis than that of positions."""
        found = _SIZES.search(str(error))
        if found is None or {int(n) for n in found.groups()} != {self.cached, self.step}:
            return None
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if is_user_file(f.filename)]
        return Span(own[-1].filename, own[-1].lineno or 1) if own else None


def returns_nothing_more(caller: Caller) -> bool:
    """Return whether a call that is asked for a cache gives nothing that another does not give."""
    switches = caller.arguments.switches
    if not switches:
        return False
    plan = Plan((), lambda: {}, "")
    try:
        asked = caller.run(caller.fresh(), plan, 0, caller.tokens, {})
        plain = caller.run(caller.fresh(), plan, 0, caller.tokens, dict.fromkeys(switches, False))
    except NotRunError:
        return False
    return _entries(asked) == _entries(plain)


def _entries(output: Any) -> object:
    """Return what an output holds at its top: its keys or types."""
    if isinstance(output, dict):
        return {key: type(value) for key, value in output.items()}
    if isinstance(output, list | tuple):
        return [type(value) for value in output]
    return type(output)


def _drawn(value: Tensor, axis: int, count: int, seed: int) -> Tensor:
    """Return a random tensor like `value` with `count` positions along `axis`."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [count if a == axis else n for a, n in enumerate(value.shape)]
    if value.is_complex():
        angles = torch.randn(sizes, generator=generator)
        return torch.polar(torch.ones(sizes), angles).to(value.dtype)
    if value.is_floating_point():
        return torch.randn(sizes, generator=generator).to(value.dtype)
    high = max(int(value.max()) + 1 if value.numel() else 2, 2)
    return torch.randint(0, high, sizes, generator=generator).to(value.dtype)


def forms_of(name: str, like: Any) -> tuple[str, ...]:
    """Return the forms in which to tell where a chunk stands, the likeliest first."""
    if isinstance(like, Tensor):
        return ({0: "scalar", 1: "flat"}.get(like.dim(), "rows"),)
    if isinstance(like, int):
        return ("number",)
    many = re.search(r"ids$|positions$|_position$|^position$", name.lower())
    return ("rows", "flat", "number") if many else ("number", "flat", "rows")


def _place(form: str, like: Any, first: int, end: int) -> Any:
    """Return where the chunk from `first` to `end` stands, in one of the forms."""
    kind = like.dtype if isinstance(like, Tensor) else torch.long
    if form == "number":
        return first
    if form == "scalar":
        return torch.tensor(first, dtype=kind)
    places = torch.arange(first, end).to(kind)
    if form == "flat":
        return places
    rows = like.shape[0] if isinstance(like, Tensor) and like.dim() == 2 else 1
    return places[None].expand(rows, -1).clone()


def _uniform_mask(value: Any, end: int) -> Any:
    """Return a mask of one value for the positions so far.

    Raises:
        NotRunError: the recorded one holds several values: what they mean is not known.
    """
    if not isinstance(value, Tensor):
        return value
    flat = value.flatten()
    if value.dim() != 2 or value.shape[0] == value.shape[1] or bool((flat != flat[:1]).any()):
        raise NotRunError("how the mask is to be made for a step is not known")
    return flat[:1].expand(value.shape[0], end).clone()


def main_output(output: Any) -> Tensor | None:
    """Return the states or logits: the first tensor of what a call returns."""
    for one in tensors(output):
        if one.is_floating_point():
            return one
    return None


def last_row(output: Any, count: int, batch: int) -> Tensor | None:
    """Return what the last of `count` positions gave, whole outputs where they have no such axis."""
    value = main_output(output)
    if value is None:
        return None
    axes = [a for a in range(value.dim() - 1) if value.shape[a] == count]
    if not axes:
        return value
    if len(axes) > 1 and count == batch and axes[0] == 0:
        axes = axes[1:]
    axis = 1 if 1 in axes else axes[0]
    return value.select(axis, count - 1)


def starts(subject: Subject, arguments: Arguments) -> Iterator[tuple[str, Callable[[], Any], bool]]:
    """Yield ways to begin without a past: (words, maker of one cache, whether it changes in place)."""
    if not arguments.required:
        yield "", lambda: NONE, False
    if not arguments.caches:
        return
    recorded = [arguments.recorded.get(n) for n in arguments.caches]
    ranks = {t.dim() for v in recorded if isinstance(v, Tensor) or _is_nest(v) for t in tensors(v)}
    for axis in range(min(ranks, default=1) - 2, -1, -1):
        yield f"an empty one, axis {axis}", lambda: None, False  # made from the recorded one
    yield "{}", dict, True
    for name, made in _cache_objects(subject):
        yield name, made, True
    yield "[]", list, True
    if arguments.required:
        yield "None", lambda: None, False


def _is_nest(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(x, Tensor) for x in tensors(value))


def _cache_objects(subject: Subject) -> list[tuple[str, Callable[[], Any]]]:
    """Return the classes of the user's file whose name says cache, and that need no argument."""
    return [
        (f"{name}()", made)
        for name, made in subject.namespace.items()
        if isinstance(made, type)
        and CACHE.search(name.lower())
        and not issubclass(made, nn.Module)
        and _can_be_made(made)
    ]


def _can_be_made(made: type) -> bool:
    try:
        made()
    except (Exception, SystemExit):  # whatever user classes raise
        return False
    return True


def emptied(value: Any, axis: int) -> Any:
    """Return a cache like `value` with no position: its `axis` of positions cut to length 0."""
    if isinstance(value, Tensor):
        return value.narrow(axis, 0, 0).clone() if value.dim() > axis else value
    if isinstance(value, list | tuple):
        return type(value)([emptied(v, axis) for v in value])
    if isinstance(value, dict):
        return {k: emptied(v, axis) for k, v in value.items()}
    return copy.deepcopy(value)
