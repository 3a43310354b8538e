"""Find the function that computes attention outside all modules, with its arguments.

A function is entered at the first torch call inside it: its arguments are read from its frame before
they are likely to be bound anew. The innermost function that holds enough spots is it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from torch import nn

from mha_lint.targets.live.keep import KeptCall, keep
from mha_lint.targets.live.watch_spots import Spots
from mha_lint.targets.tensors import tensors_in

FOREIGN, SHUT, OPEN, TAKEN, FLAT = range(5)
"""A function: not the user's, of no interest, not known yet, copied already; a script's body."""
TRIES = 3
"""Calls without attention after which a function is of no interest."""


@dataclass(slots=True)
class Entry:
    """One running call of a function."""

    code: CodeType
    function: Callable[..., Any]
    kept: KeptCall
    owner: nn.Module | None
    where: str
    outer: tuple[Entry, ...]
    holds_tensors: bool
    spots: Spots = field(default_factory=Spots)


class FrameTracker:
    """The functions that run in one thread outside all modules."""

    def __init__(
        self,
        base: FrameType | None,
        is_user: Callable[[str], bool],
        where: Callable[[FrameType | None], str],
        take: Callable[[Entry], bool],
        repeat: Callable[[], None],
        private: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`base`: the frame that runs the program; `take` is given what holds attention.

        It says whether that call will do. `repeat` is called when a function that was taken computes
        attention again. What is copied is copied in a `private` block.
        """
        self.base = base
        self.flat: dict[CodeType, Spots] = {}
        """Bodies of scripts, and functions without arguments, in which attention was computed."""
        self._is_user = is_user
        self._where = where
        self._take = take
        self._repeat = repeat
        self._private = private
        self._codes: dict[int, int] = {}
        self._alive: list[CodeType] = []
        """The codes whose addresses are known: codes themselves are slow to look up."""
        self._last: FrameType | None = None
        self._tries: dict[CodeType, int] = {}
        self._entries: dict[FrameType, Entry] = {}
        self._chain: list[tuple[int, FrameType]] = []
        self._again: list[CodeType] = []
        """Functions whose running call would not do: their next one may."""

    def enter(self, frame: FrameType | None) -> None:
        """Note the functions that run now, before the next operation."""
        if frame is self._last:
            return  # what runs around a running frame stays the same
        codes, first = self._codes, frame
        chain: list[tuple[int, FrameType]] = []
        base, standing, new = self.base, 0, []
        while frame is not None and frame is not base:
            code = frame.f_code
            verdict = codes.get(id(code))
            if verdict is None:
                verdict = codes[id(code)] = self._verdict(code)
                self._alive.append(code)
            if verdict > SHUT:
                chain.append((verdict, frame))
                if frame in self._entries:
                    standing += 1
                elif verdict == OPEN:
                    new.append(frame)
            frame = frame.f_back
        self._chain = chain
        if self._again:
            self._reopen({f.f_code for _, f in chain})
        if standing < len(self._entries):
            self._leave({f for _, f in chain})
        if new:
            with self._private():
                for frame in reversed(new):
                    self._entries[frame] = self._entry(frame)
        # Only a frame of torch is held: to hold one of the program would keep its values alive.
        foreign = first is not None and codes.get(id(first.f_code)) == FOREIGN
        self._last = first if foreign else None

    def spot(self, kind: int) -> None:
        """Note a spot in the functions that `enter` saw last."""
        one = Spots()
        one.seen[kind] = 1
        self.join(one)

    def join(self, spots: Spots) -> None:
        """Note several spots that one call made."""
        for index, (verdict, frame) in enumerate(self._chain):
            if verdict == TAKEN:
                self._repeat()
                return
            if verdict == FLAT:
                self.flat.setdefault(frame.f_code, Spots()).join(spots)
                continue
            entry = self._entries.get(frame)
            if entry is None:
                continue
            before = Spots()
            before.join(entry.spots)
            entry.spots.join(spots)
            if entry.spots.enough():
                self._found(entry, frame, before, self._chain[index + 1 :])
                return

    def _found(
        self, entry: Entry, frame: FrameType, before: Spots, around: list[tuple[int, FrameType]]
    ) -> None:
        """Hand `entry` over; what it held does not count for the functions around it."""
        for verdict, other in around:
            if verdict == FLAT and other.f_code in self.flat:
                self.flat[other.f_code].without(before)
            elif other in self._entries:
                self._entries[other].spots.without(before)
        del self._entries[frame]
        self._codes[id(entry.code)] = TAKEN
        if not entry.holds_tensors:
            self.flat.setdefault(entry.code, Spots()).join(entry.spots)
        elif not self._take(entry):
            self._again.append(entry.code)

    def _reopen(self, running: set[CodeType]) -> None:
        """Look at a function again once the call that would not do has ended."""
        for code in [c for c in self._again if c not in running]:
            self._again.remove(code)
            tries = self._tries[code] = self._tries.get(code, 0) + 1
            if tries < TRIES:
                self._codes[id(code)] = OPEN

    def _leave(self, running: set[FrameType]) -> None:
        for frame in [f for f in self._entries if f not in running]:
            entry = self._entries.pop(frame)
            tries = self._tries[entry.code] = self._tries.get(entry.code, 0) + 1
            if tries >= TRIES:
                self._codes[id(entry.code)] = SHUT

    def holds(self) -> bool:
        """Return whether a function runs that can be called again."""
        return any(
            verdict == TAKEN or (frame in self._entries and self._entries[frame].holds_tensors)
            for verdict, frame in self._chain
        )

    def clear(self) -> None:
        """Let go of all frames."""
        self._entries.clear()
        self._chain = []
        self._last = None

    def _verdict(self, code: CodeType) -> int:
        if not self._is_user(code.co_filename):
            return SHUT if _resumes(code) else FOREIGN
        if code.co_name == "<module>":
            return FLAT
        if _resumes(code) or not code.co_flags & inspect.CO_NEWLOCALS:
            return SHUT
        inner = code.co_name.startswith("<") and code.co_name != "<lambda>"
        return SHUT if inner else OPEN  # a comprehension belongs to what it stands in

    def _entry(self, frame: FrameType) -> Entry:
        outer = tuple(reversed(self._entries.values()))
        function, args, kwargs = called(frame)
        owner = args[0] if args and isinstance(args[0], nn.Module) else None
        kept = keep(owner, args, kwargs)
        given = (*args, *kwargs.values(), *(c.cell_contents for c in function.__closure__ or ()))
        holds = owner is not None or any(True for _ in tensors_in(given))
        return Entry(
            frame.f_code, function, kept, owner, self._where(frame.f_back), outer[:2], holds
        )


def _resumes(code: CodeType) -> bool:
    """Return whether `code` is a generator's or a coroutine's, which runs on in other places."""
    kinds = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    return bool(code.co_flags & kinds)


def called(frame: FrameType) -> tuple[types.FunctionType, tuple[Any, ...], dict[str, Any]]:
    """Return the function that runs in `frame`, and the values of its parameters."""
    code, names = frame.f_code, frame.f_locals
    closure = tuple(types.CellType(names.get(name)) for name in code.co_freevars)
    function = types.FunctionType(code, frame.f_globals, code.co_name, None, closure)
    function.__qualname__ = code.co_qualname
    function.__module__ = str(frame.f_globals.get("__name__", ""))
    count, only = code.co_argcount, code.co_kwonlyargcount
    args = [names.get(name) for name in code.co_varnames[:count]]
    kwargs = {name: names.get(name) for name in code.co_varnames[count : count + only]}
    rest = count + only
    if code.co_flags & inspect.CO_VARARGS:
        args += names.get(code.co_varnames[rest], ())
        rest += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= names.get(code.co_varnames[rest], {})
    return function, tuple(args), kwargs


def subject_of(entry: Entry, owner: nn.Module | None) -> tuple[Any, tuple[Any, ...]]:
    """Return what to call, and its arguments, where `owner` is a copy of the module it belongs to."""
    if owner is None:
        return entry.function, entry.kept.args
    forward = getattr(type(owner), "forward", None)
    if forward is not None and getattr(inspect.unwrap(forward), "__code__", None) is entry.code:
        return owner, entry.kept.args[1:]
    return types.MethodType(entry.function, owner), entry.kept.args[1:]
