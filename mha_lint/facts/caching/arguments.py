"""What each argument of a call is, as far as decoding step by step is concerned."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.influence import entries
from mha_lint.model.facts import Kind
from mha_lint.sites.dependence import operands
from mha_lint.targets.infer.input_names import MASK, ROTARY
from mha_lint.targets.infer.signatures import parameters_of
from mha_lint.targets.subject import Subject

CACHE = re.compile(
    r"past|cache|hist(ory)?($|_)|^prev|^mems?$|_mems?$|^states?$|incremental|^kv$|^layer_state"
)
SURE = re.compile(r"past|cache|hist(ory)?($|_)|incremental")
"""Names of a cache, where ``state`` and ``mem`` may be something else."""
PLACE = re.compile(
    r"position|(^|_)pos($|_(ids?|offset)$)|offset|^start|^begin|^t0$|^step$|past_len|cache_len"
    r"|seqlen_offset|^cur(rent)?_(pos|len|step)|^input_pos$|^idx_pos$"
)
TABLES = re.compile(r"mask|bias|table|(^|_)(cos|sin|freqs)(_|$)|weights|maps?$")
SWITCH = re.compile(r"^(use|return|need|output|with|store|keep|update)_?\w*(cache|past|kv|present)")


WIDEST = 4
"""Positions of a step at most."""


@dataclass(slots=True)
class Arguments:
    """The arguments of one call by what they are for.

    ``sequences``: tensors that are cut into chunks, with their axis of positions; ``caches``: what
    takes the past; ``places``: numbers or indices that say where a chunk stands, with whether they
    are required; ``tables``: tensors with a row for each position; ``switches``: flags that ask for a
    cache; ``fixed``: all that is passed as recorded, ``extras``: tensors among it that a call may leave
    out, as pictures beside a text. ``required``: caches without a default. ``step``: how many
    positions a step has: those of the recorded call where it passes a past, and the user wrote it.
    """

    sequences: dict[str, tuple[Tensor, int]] = field(default_factory=dict)
    caches: list[str] = field(default_factory=list)
    required: list[str] = field(default_factory=list)
    places: dict[str, tuple[Any, bool]] = field(default_factory=dict)
    tables: dict[str, tuple[Tensor, int]] = field(default_factory=dict)
    masks: dict[str, Any] = field(default_factory=dict)
    switches: list[str] = field(default_factory=list)
    fixed: dict[str, Any] = field(default_factory=dict)
    extras: list[str] = field(default_factory=list)
    recorded: dict[str, Any] = field(default_factory=dict)
    length: int = 0
    step: int = 1


def arguments_of(subject: Subject, bench: Bench) -> Arguments | None:
    """Return what the arguments of `subject` are for, None if no sequence is among them."""
    target = subject.module.forward if isinstance(subject.module, nn.Module) else subject.module
    parameters = {p.name: p for p in parameters_of(target)}
    values = [*subject.args, *subject.kwargs.values()]
    if len(subject.argument_names) != len(values):
        return None
    recorded = dict(zip(subject.argument_names, values, strict=True))
    if any(name not in parameters for name in recorded):
        return None
    axes = _sequence_axes(bench, recorded)
    if not axes:
        return None
    first = next(iter(axes))
    found = Arguments(recorded=recorded, length=recorded[first].shape[axes[first]])
    for name, parameter in parameters.items():
        low = name.lower()
        given = name in recorded
        value = recorded.get(name, parameter.default)
        required = parameter.default is inspect.Parameter.empty
        if isinstance(value, bool) or (value is None and SWITCH.search(low)):
            if SWITCH.search(low):
                found.switches.append(name)
            elif given:
                found.fixed[name] = value
        elif PLACE.search(low) and _tells_a_place(value):
            found.places[name] = (value, required)
        elif name in axes:
            found.sequences[name] = (recorded[name], axes[name])
        elif _takes_a_past(low) and not isinstance(value, int | float | str):
            found.caches.append(name)
            if required:
                found.required.append(name)
        elif given and value is not None and MASK.search(low):
            found.masks[name] = value
        elif given and ROTARY.search(low) and _follows(value, found.length) is not None:
            found.tables[name] = (value, _follows(value, found.length) or 0)
        elif given:
            found.fixed[name] = value
            if parameter.default is None and any(True for _ in tensors(value)):
                found.extras.append(name)
    if subject.real and any(
        any(True for _ in tensors(recorded.get(name))) for name in found.caches
    ):
        found.step = min(max(found.length, 1), WIDEST)
    return found


def without_extras(arguments: Arguments) -> Arguments | None:
    """Return the arguments of a call on the sequence alone, None if nothing was left out."""
    if not arguments.extras:
        return None
    fixed = {n: v for n, v in arguments.fixed.items() if n not in arguments.extras}
    return dataclasses.replace(arguments, fixed=fixed, extras=[])


def _sequence_axes(bench: Bench, recorded: dict[str, Any]) -> dict[str, int]:
    """Return the arguments that queries of self-attention are made from, with their axis of positions."""
    queries = [s.all[0].q.node for s in bench.sites if s.kind is Kind.SELF and s.all[0].q]
    if not queries:
        return {}
    last = max(queries, key=bench.dependence.order.__getitem__)
    above = _without_attention(bench, last) or bench.dependence.ancestors(queries)
    known = {e.argument: e.axis for e in entries(bench)}
    found: dict[str, int] = {}
    for placeholder, name in zip(
        bench.recording.placeholders, bench.recording.input_names, strict=True
    ):
        value = recorded.get(name)
        if placeholder not in above or not isinstance(value, Tensor):
            continue
        if value.dtype is torch.bool or CACHE.search(name.lower()) or MASK.search(name.lower()):
            continue
        axis = _axis(value, known.get(name))
        if axis is not None:
            found[name] = axis
    if not found:
        return {}
    lengths = [recorded[n].shape[a] for n, a in found.items()]
    return {n: a for n, a in found.items() if recorded[n].shape[a] == lengths[0]}


def _without_attention(bench: Bench, queries: Node) -> set[Node]:
    """Return what `queries` depend on by no attention before them, {} if that is no input.

    A decoder's last queries hold what it decodes; the encoder's source comes in by attention.
    """
    stop = {m.context for s in bench.sites for m in s.all}
    found: set[Node] = set()
    front = [queries]
    while front:
        node = front.pop()
        if node not in found and node not in stop:
            found.add(node)
            front += operands(node)
    return found if found & set(bench.recording.placeholders) else set()


def _axis(value: Tensor, known: int | None) -> int | None:
    if value.is_floating_point():
        if value.dim() != 3:
            return known
        return known if known is not None else _single(value)
    if value.dim() == 2:
        return known if known is not None and known < 2 else 1
    return 0 if value.dim() == 1 else None


def _single(value: Tensor) -> int:
    """Return the axis of a (B, 1, C) or (1, B, C) tensor that holds the one position."""
    return 0 if value.shape[0] == 1 and value.shape[1] > 1 else 1


def _takes_a_past(name: str) -> bool:
    """Return whether an argument is called as a cache of keys and values is, and not as one of tables."""
    return bool(CACHE.search(name)) and not (TABLES.search(name) or ROTARY.search(name))


def _tells_a_place(value: Any) -> bool:
    if value is None or value is inspect.Parameter.empty or isinstance(value, int):
        return True
    return isinstance(value, Tensor) and not value.is_floating_point()


def _follows(value: Any, length: int) -> int | None:
    """Return the axis of a table that has a row for each of `length` positions, None if there is none."""
    if not isinstance(value, Tensor) or value.dim() < 2:
        return None
    axes = [a for a, n in enumerate(value.shape[:-1]) if n == length]
    return axes[-1] if axes else None


def tensors(value: Any, depth: int = 4) -> Iterable[Tensor]:
    """Yield the tensors in containers and attributes of `value`, in a fixed order."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from tensors(item, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item, depth - 1)
    elif depth and hasattr(value, "__dict__") and not isinstance(value, nn.Module | type):
        for item in vars(value).values():
            yield from tensors(item, depth - 1)
