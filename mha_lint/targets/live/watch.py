"""Watch a running program: copy the first call of every distinct module that computes attention."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import nn

from mha_lint.targets.live.keep import keep
from mha_lint.targets.live.process import Patches
from mha_lint.targets.live.snapshot import place_of
from mha_lint.targets.live.watch_found import NO_VALUES, Found, Seen
from mha_lint.targets.live.watch_frames import Entry, FrameTracker
from mha_lint.targets.live.watch_spots import Spots
from mha_lint.targets.live.watch_state import Known, Record, ThreadState

TRIES = 3
"""Calls of one kind that may fail to be copied before it is given up."""
_PACKAGE = str(Path(__file__).parents[2])


class StopRun(BaseException):
    """Nothing new has come for as many calls as the user has patience for."""


class Watcher:
    """Watches while it is entered; `seen` may be asked for at any time.

    Every call of a module passes through us: those that are known cost two look-ups. A call of
    a new kind is run under a mode that counts products of activations, and copied if there were
    enough. Nothing that the program can see is changed.
    """

    def __init__(
        self, is_user: Callable[[str], bool], *, cwd: str, stop_after: int | None = None
    ) -> None:
        """`is_user` tells files of user code; `stop_after`: raise `StopRun` when that many calls
        of known attention modules have brought nothing new."""
        self._is_user = is_user
        self._found = Found(is_user, cwd)
        self._stop_after = stop_after
        self._quiet = 0
        self._lock = threading.RLock()
        self._local = threading.local()
        self._keys: dict[Any, int] = {}
        self._instances: dict[int, tuple[Any, int]] = {}
        self._known: dict[Any, Known] = {}
        self._tries: dict[Any, int] = {}
        self._active = False
        self._patches = Patches(self._forked)

    def label(self, text: str) -> None:
        """Note `text`, as the name of a test, with whatever is copied from now on."""
        self._found.label = text

    # Installing

    def start(self, base: FrameType | None = None) -> None:
        """Watch from now on; functions outside `base` are none of the program's."""
        original = nn.Module.__call__
        self._original = original
        nn.Module.__call__ = self._wrapper(original)  # type: ignore[method-assign]
        self._active = True
        self._patches.install()
        state = self._state()
        state.frames = FrameTracker(
            base, self._is_user, self._found.where, self._function, self._repeated, state.private
        )
        state.start()

    def stop(self) -> None:
        """Put everything back."""
        state = self._state()
        state.stop()
        if state.frames is not None:
            self._found.flat(state.frames.flat)
            state.frames.clear()
            state.frames = None
        state.record = None
        state.chain.clear()
        self._patches.remove()
        self._active = False
        nn.Module.__call__ = self._original  # type: ignore[method-assign]

    def __enter__(self) -> Watcher:
        """Watch what the caller runs."""
        self.start(sys._getframe(1))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put everything back."""
        self.stop()

    def _forked(self) -> None:
        """Leave a child process alone."""
        if self._active:
            self.stop()

    def _state(self) -> ThreadState:
        state: ThreadState | None = getattr(self._local, "state", None)
        if state is None:
            state = self._local.state = ThreadState()
        return state

    # Calls of modules

    def _wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        local, instances, known_calls = self._local, self._instances, self._known
        fresh_state = self._state

        def __call__(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return original(module, *args, **kwargs)
            try:
                state = local.state
            except AttributeError:
                state = fresh_state()
            if state.busy:
                return original(module, *args, **kwargs)
            instance = instances.get(id(module))
            if instance is None or instance[0]() is not module:
                instance = self._instance(state, module)
            known = known_calls.get((instance[1], _kinds(args, kwargs)))
            if not state.chain:
                state.serial += 1
                if state.frames is not None and not _is_own(module):
                    state.frames.enter(sys._getframe(1))
            if known is None:
                record = self._begin(state, instance[1], module, args, kwargs)
                if record is None:
                    return original(module, *args, **kwargs)
                started = state.start()
                state.chain.append(record)
                state.record, outer = record, state.record
                try:
                    result = original(module, *args, **kwargs)
                except Exception as error:
                    self._failed(record, error)
                    raise
                finally:
                    state.record = outer
                    if state.chain:
                        state.chain.pop()
                    if started:
                        state.stop()
                self._end(state, record)
                return result
            self._again(state, known, module, args)
            paused = state.on and state.pause()
            state.chain.append(known.record)
            try:
                return original(module, *args, **kwargs)
            finally:
                if state.chain:
                    state.chain.pop()
                if paused and self._active:
                    state.start()

        return __call__

    def _again(self, state: ThreadState, known: Known, module: Any, args: Any) -> None:
        """Note a call of a kind that is known."""
        record = state.record
        if record is not None:
            record.spots.join(known.spots)
            if known.attends:
                _beside(record, module, args)
        elif not state.chain and state.frames is not None and known.spots.enough():
            state.frames.join(known.spots)
        if not known.attends:
            return
        if known.serial == state.serial:
            known.members.add(id(module))
        self._repeated()

    def _repeated(self) -> None:
        self._quiet += 1
        if self._stop_after is not None and self._found and self._quiet >= self._stop_after:
            raise StopRun

    def _begin(
        self, state: ThreadState, number: int, module: Any, args: Any, kwargs: Any
    ) -> Record | None:
        """Return a record of a call that was not seen before, with what it is about to change."""
        try:
            with state.private():
                key = (number, _kinds(args, kwargs))
                own = _is_own(module)
                record = Record(module, key, state.record, own=own)
                record.serial = state.serial
                record.first = args[:1]
                frame = sys._getframe(2)
                if self._tries.get(key, 0) >= TRIES or _is_ours(frame):
                    return None
                if own or state.record is None:
                    record.kept = keep(module, args, kwargs)
                    record.where = self._found.where(frame)
                    record.outer = tuple(
                        r for r in reversed(state.chain) if r is not None and r.own
                    )
                return record
        except Exception as error:
            self._found.crashed(error)
            return None

    def _end(self, state: ThreadState, record: Record) -> None:
        """Decide what a call was, now that it has ended."""
        try:
            with state.private():
                self._judge(state, record)
        except Exception as error:
            self._found.crashed(error)
            self._known[record.key] = Known(None, Spots(), attends=False)
        record.let_go()

    def _judge(self, state: ThreadState, record: Record) -> None:
        module = record.module
        assert module is not None
        alone = record.up is None and not (state.frames is not None and state.frames.holds())
        heads = any(len(members) > 1 for members in record.parallel.values())
        attends = (record.spots.enough() or heads) and (record.own or alone)
        left = Spots()
        if not attends:
            left.join(record.spots)
        with self._lock:
            if record.key not in self._known:  # another thread may have been quicker
                self._settle(record, module, left, attends=attends)
        if record.up is not None:
            record.up.spots.join(left)
            if attends:
                _beside(record.up, module, record.first)
        elif not attends and left.enough() and state.frames is not None:
            state.frames.join(left)

    def _settle(self, record: Record, module: nn.Module, left: Spots, *, attends: bool) -> None:
        """Copy the call where it matters, and know its kind from now on."""
        matters = attends or record.wanted
        if matters and not self._found.copied(record, module, attends=attends):
            self._tries[record.key] = self._tries.get(record.key, 0) + 1
            if attends:  # forgotten if a later one can be kept
                span, name = place_of(module)
                self._found.leave_out(span.path, name, NO_VALUES)
            return
        known = Known(record if record.snapshot is not None else None, left, attends=attends)
        known.serial = record.serial
        known.members.add(id(module))
        self._known[record.key] = known
        if attends and record.snapshot is not None:
            self._found.attends(record, known)
            self._quiet = 0

    def _failed(self, record: Record, error: Exception) -> None:
        self._tries[record.key] = self._tries.get(record.key, 0) + 1
        module = record.module
        if record.own and record.spots.enough() and module is not None:
            span, name = place_of(module)
            why = f"the call raised {type(error).__name__}: {error}"
            self._found.leave_out(span.path, name, why.splitlines()[0])
        record.let_go()

    def _instance(self, state: ThreadState, module: nn.Module) -> tuple[Any, int]:
        """Return a reference to `module`, and a number for its class, widths and switches."""
        with state.private():
            lazy = torch.nn.UninitializedParameter
            shapes = tuple(
                () if isinstance(p, lazy) else (*p.shape, p.dtype) for p in module.parameters()
            )
            switches = tuple(
                (n, v) for n, v in vars(module).items() if isinstance(v, bool) and n != "training"
            )
        with self._lock:
            kind = (type(module), shapes, switches)
            instance = (weakref.ref(module), self._keys.setdefault(kind, len(self._keys)))
            self._instances[id(module)] = instance
        return instance

    def _function(self, entry: Entry) -> bool:
        """Copy the call of a function; return whether that is settled, or is to be tried again."""
        state = self._state()
        try:
            with state.private():
                settled = self._found.function(entry)
        except Exception as error:
            self._found.crashed(error)
            return True
        self._quiet = 0
        return settled

    # What came of it

    def seen(self) -> Seen:
        """Return what was copied, in the order of the program, and what could not be."""
        return self._found.seen(tuple(self._patches.scripted))


def _beside(record: Record, module: Any, args: Any) -> None:
    """Note that `record` calls an attention module with this input: perhaps it is one of its heads."""
    first = args[0] if args else None
    if isinstance(first, torch.Tensor):
        record.parallel.setdefault((type(module), id(first)), set()).add(id(module))


def _kinds(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return which arguments are None, which are alike, and the values of switches."""
    tensors: list[Any] = []
    kinds: list[Any] = list(kwargs)
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            kinds.append(next(i for i, x in enumerate(tensors) if x is value))
        else:
            kinds.append(value if value is None or isinstance(value, bool) else type(value))
    return tuple(kinds)


def _is_own(module: Any) -> bool:
    """Return whether the class of `module` is user code, not torch's."""
    return type(module).__module__.partition(".")[0] != "torch"


def _is_ours(frame: FrameType | None) -> bool:
    """Return whether mha-lint itself makes the call: a check inside the program."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_PACKAGE) and not path.startswith(f"{_PACKAGE}/targets/live"):
            return "/cli/" not in path and not path.endswith("pytest_plugin.py")
        frame = frame.f_back
    return False
