"""Find out how a module is driven step by step: what to pass as a past, and where it comes back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from mha_lint.facts.caching.arguments import SURE, Arguments, tensors
from mha_lint.facts.caching.calls import (
    NONE,
    Caller,
    NotRunError,
    Plan,
    emptied,
    forms_of,
    last_row,
    main_output,
    starts,
)

MOST_CANDIDATES = 6
MOST_FORMS = 6
COARSE = (torch.float16, torch.bfloat16, torch.int8, torch.uint8)
Sizes: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Trial:
    """One way of stepping that ran.

    ``place``, ``index``: where the cache comes back, in words and among the candidates. ``gaps``:
    relative differences of each step's row from the whole's, ``changes``: absolute ones. ``sizes``:
    of the cached tensors after each call. ``reads``: the step depends on the past. ``coarse``: some
    are kept in a half type or as whole numbers.
    """

    plan: Plan
    place: str
    index: int
    gaps: list[float]
    changes: list[float]
    sizes: list[Sizes]
    reads: bool
    coarse: bool = False
    step: int = 1

    @property
    def grows(self) -> bool:
        """Return whether the cached tensors get longer with each step, by as much as it has positions."""
        pairs = itertools.pairwise(self.sizes)
        return bool(self.sizes[0]) and all(_longer(a, b, self.step) for a, b in pairs)


@dataclass(frozen=True, slots=True)
class Returned:
    """A cache within an output, by its place in words."""

    place: str
    past: dict[str, Any]


def trials(caller: Caller) -> Iterator[Trial]:
    """Yield each way of stepping that runs, the plainest first."""
    for plan in plans(caller):
        try:
            wholes = whole_rows(caller, plan)
        except NotRunError:
            continue
        yield from _stepped(caller, plan, wholes)


def plans(caller: Caller) -> Iterator[Plan]:
    """Yield the combinations of telling places and of beginning a cache."""
    known = caller.arguments
    for words, start, mutable in starts(caller.subject, known):
        for places in _told(known):
            for whole in (False, True) if known.tables else (False,):
                yield Plan(places, _starting(known, words, start), words, mutable, whole)


def _told(known: Arguments) -> list[tuple[tuple[str, str], ...]]:
    """Return the ways to tell where a chunk stands: all arguments for it, then the required ones."""
    required = [n for n, (_, needed) in known.places.items() if needed]
    found: list[tuple[tuple[str, str], ...]] = []
    for names in (list(known.places), required):
        forms = [forms_of(n, known.places[n][0]) for n in names]
        for chosen in itertools.islice(itertools.product(*forms), MOST_FORMS):
            told = tuple(zip(names, chosen, strict=True))
            if told not in found:
                found.append(told)
    return found


def _starting(known: Arguments, words: str, start: Any) -> Any:
    def made() -> dict[str, Any]:
        if words.startswith("an empty one"):
            axis = int(words.rpartition(" ")[2])
            recorded = known.recorded
            return {n: emptied(recorded[n], axis) if n in recorded else NONE for n in known.caches}
        return {n: start() for n in known.caches}

    return made


def whole_rows(caller: Caller, plan: Plan) -> list[Tensor]:
    """Return the last rows of calls on all positions up to the end of each step, without any past.

    Raises:
        NotRunError: the module refused.
    """
    found: list[Tensor] = []
    for _, end in caller.chunks():
        output = caller.run(caller.fresh(), plan, 0, end, plan.start())
        row = last_row(output, end, _batch(caller))
        if row is None or not bool(row.isfinite().all()):
            raise NotRunError("the call on the whole sequence gives no numbers")
        found.append(row)
    return found


def _batch(caller: Caller) -> int:
    value, axis = next(iter(caller.arguments.sequences.values()))
    return int(value.shape[1 - axis]) if value.dim() > 1 and axis < 2 else 1


def _stepped(caller: Caller, plan: Plan, wholes: list[Tensor]) -> Iterator[Trial]:
    module = caller.fresh()
    start = plan.start()
    try:
        output = caller.run(module, plan, 0, caller.cached, start)
    except NotRunError:
        return
    for index, back in enumerate(_returned(caller, plan, output, start)):
        if index >= MOST_CANDIDATES:
            return
        trial = _from(caller, plan, index, back.place, wholes)
        if trial is not None:
            yield trial


def _from(caller: Caller, plan: Plan, index: int, place: str, wholes: list[Tensor]) -> Trial | None:
    """Step through the rest of the sequence with the cache that comes back at one place."""
    module = caller.fresh()
    start = plan.start()
    gaps: list[float] = []
    changes: list[float] = []
    sizes: list[Sizes] = []
    coarse = False
    try:
        output = caller.run(module, plan, 0, caller.cached, start)
        past = returned_at(caller, plan, output, start, index)
        sizes.append(_sizes(past))
        coarse = any(t.dtype in COARSE for t in tensors(list(past.values())))
        for (first, end), whole in zip(caller.chunks(), wholes, strict=True):
            output = caller.run(module, plan, first, end, past)
            row = last_row(output, end - first, _batch(caller))
            if row is None or row.numel() != whole.numel():
                return None
            gap = (row.reshape(whole.shape) - whole).abs().max()
            changes.append(float(gap))
            gaps.append(float(gap / whole.abs().max().clamp(min=1e-6)))
            past = returned_at(caller, plan, output, past, index)
            sizes.append(_sizes(past))
    except NotRunError:
        return None
    reads = _reads_past(caller, plan, index)
    return Trial(plan, place, index, gaps, changes, sizes, reads, coarse, caller.step)


def _reads_past(caller: Caller, plan: Plan, index: int) -> bool:
    """Return whether a step changes when the cached positions were others."""
    other = _other(caller)
    rows: list[Tensor] = []
    for earlier in (caller, other):
        module = caller.fresh()
        start = plan.start()
        try:
            output = earlier.run(module, plan, 0, caller.cached, start)
            past = returned_at(caller, plan, output, start, index)
            stepped = caller.run(module, plan, *caller.chunks()[0], past)
        except NotRunError:
            return False
        value = main_output(stepped)
        if value is None:
            return False
        rows.append(value)
    return rows[0].shape == rows[1].shape and bool((rows[0] - rows[1]).abs().max() > 1e-6)


def returned_at(
    caller: Caller, plan: Plan, output: Any, start: dict[str, Any], index: int
) -> dict[str, Any]:
    """Return the cache at one place of `output`, as arguments for the next call.

    Raises:
        NotRunError: it does not come back there.
    """
    found = list(itertools.islice(_returned(caller, plan, output, start), index + 1))
    if len(found) <= index:
        raise NotRunError("the cache does not come back")
    return found[index].past


def _returned(caller: Caller, plan: Plan, output: Any, start: dict[str, Any]) -> Iterator[Returned]:
    """Yield what of `output` may be the cache, as arguments for the next call."""
    names = caller.arguments.caches
    if plan.mutable:
        yield Returned("the argument itself", start)
        return
    if not names:
        yield Returned("the module itself", {})
        return
    parts = _parts(output)
    behind = parts[1:] if isinstance(output, list | tuple) else _named_parts(parts)
    if len(names) == 1:
        for place, value in behind:
            if _holds_numbers(value):
                yield Returned(place, {names[0]: value})
        if len(behind) > 1:
            yield Returned("output[1:]", {names[0]: tuple(v for _, v in behind)})
        return
    for first in range(len(behind) - len(names) + 1):
        group = behind[first : first + len(names)]
        if all(isinstance(v, Tensor) for _, v in group):
            values = [v for _, v in group]
            yield Returned(f"output from {group[0][0]}", dict(zip(names, values, strict=True)))
    for place, value in behind:
        if isinstance(value, list | tuple) and len(value) == len(names):
            yield Returned(place, dict(zip(names, value, strict=True)))


def _named_parts(parts: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    sure = [(p, v) for p, v in parts if SURE.search(p.lower()) or "present" in p.lower()]
    return sure or parts[1:]


def _parts(output: Any) -> list[tuple[str, Any]]:
    if isinstance(output, dict):
        return [(f"output[{k!r}]", v) for k, v in output.items()]
    if isinstance(output, list | tuple):
        return [(f"output[{i}]", v) for i, v in enumerate(output)]
    if hasattr(output, "__dict__") and not isinstance(output, Tensor):
        return [(f"output.{k}", v) for k, v in vars(output).items()]
    return [("output", output)]


def _holds_numbers(value: Any) -> bool:
    return any(t.is_floating_point() for t in tensors(value))


def _sizes(past: dict[str, Any]) -> Sizes:
    return tuple(tuple(t.shape) for t in tensors(list(past.values())) if t.dim() > 1)


def size_after(caller: Caller, trial: Trial, count: int) -> Sizes | None:
    """Return the sizes of what comes back from one call on the first `count` positions."""
    start = trial.plan.start()
    try:
        output = caller.run(caller.fresh(), trial.plan, 0, count, start)
        return _sizes(returned_at(caller, trial.plan, output, start, trial.index))
    except NotRunError:
        return None


def holds_the_sequence(caller: Caller, trial: Trial) -> bool:
    """Return whether what comes back is another for another sequence: a table of positions is not."""
    held: list[list[Tensor]] = []
    for one in (caller, _other(caller)):
        start = trial.plan.start()
        try:
            output = one.run(one.fresh(), trial.plan, 0, one.cached, start)
            past = returned_at(one, trial.plan, output, start, trial.index)
        except NotRunError:
            return False
        held.append(list(tensors(list(past.values()))))
    pairs = list(zip(*held, strict=False))
    return bool(pairs) and all(a.shape == b.shape and not torch.equal(a, b) for a, b in pairs)


def _other(caller: Caller) -> Caller:
    """Return a caller of the same module on another sequence."""
    return Caller(caller.subject, caller.module, caller.arguments, caller.lengths, seed=5)


def _longer(one: Sizes, two: Sizes, by: int) -> bool:
    """Return whether each tensor got longer by so much along one axis."""
    if len(one) != len(two) or not one:
        return False
    return all(
        len(a) == len(b) and sum(abs(x - y) for x, y in zip(a, b, strict=True)) == by
        for a, b in zip(one, two, strict=True)
    )
