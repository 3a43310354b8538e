"""What a watcher has found: copies of calls, and what could not be copied."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torch import nn

from mha_lint.model.report import NotChecked
from mha_lint.model.source import Span
from mha_lint.targets.live.keep import KeptCall, copy_of, lively, size_of
from mha_lint.targets.live.snapshot import Snapshot, place_of, with_count
from mha_lint.targets.live.watch_frames import Entry, subject_of
from mha_lint.targets.live.watch_spots import Spots
from mha_lint.targets.live.watch_state import Known, Record

MOST_CALLS = 64
"""Calls that are copied at most."""
MOST_BYTES = 4 << 30
"""Bytes of parameters that are copied at most."""
LEVELS = 2
"""Calls around a copied one that are copied as well."""
NO_VALUES = (
    "its arguments hold no values that could be kept: inside vmap, or overwritten in the call"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a watcher has seen.

    ``left_out``: calls that could not be copied. ``flat``: attention in code that no function with
    arguments holds, which cannot be called again. ``crashes``: tracebacks of our own errors.
    ``scripted``: functions that the program handed to TorchScript, with what that made of them.
    """

    snapshots: tuple[Snapshot, ...]
    left_out: tuple[NotChecked, ...] = ()
    flat: tuple[NotChecked, ...] = ()
    crashes: tuple[str, ...] = ()
    scripted: tuple[tuple[Any, Any], ...] = ()


class Found:
    """Collects what is found, within limits."""

    def __init__(self, is_user: Callable[[str], bool], cwd: str) -> None:
        """`is_user` tells files of user code; places are told relative to `cwd`."""
        self.label = ""
        self._is_user = is_user
        self._cwd = cwd
        self._bytes = 0
        self._order: list[tuple[Record, Known] | Snapshot] = []
        self._left_out: dict[str, NotChecked] = {}
        self._flat: dict[CodeType, Spots] = {}
        self._crashes: list[str] = []

    def __bool__(self) -> bool:
        """Return whether anything was copied."""
        return bool(self._order)

    def copied(self, record: Record, module: nn.Module, *, attends: bool) -> bool:
        """Copy the call of `record`, which has ended; return whether its arguments allow it.

        `attends`: it is to be judged; else it is only wanted around another one.
        """
        kept = record.kept
        if kept is None or not kept.intact:
            return False
        span, name = place_of(module)
        size = sum(size_of(p) for p in module.parameters())
        if self._bytes + size > MOST_BYTES or (attends and len(self._order) >= MOST_CALLS):
            if attends:
                self.leave_out(span.path, name, self._limit())
            return True
        self._bytes += size
        record.snapshot = self._made(
            name, span, copy_of(module, kept), kept, kept.args, record.where
        )
        return True

    def attends(self, record: Record, known: Known) -> None:
        """Note that the call of `record` is to be judged, and wants those around it."""
        self._order.append((record, known))
        for outer in record.outer[:LEVELS]:
            outer.wanted = True

    def function(self, entry: Entry) -> bool:
        """Copy the call of a function, which runs now; return whether its arguments allow it."""
        name, path = entry.code.co_qualname, entry.code.co_filename
        if not entry.kept.intact:
            self.leave_out(path, name, NO_VALUES)
            return False
        if len(self._order) >= MOST_CALLS:
            self.leave_out(path, name, self._limit())
            return True
        self._order.append(self._snapshot(entry))
        return True

    def _limit(self) -> str:
        return (
            f"more than {MOST_CALLS} kinds of calls, or {MOST_BYTES >> 30} GiB, were copied before"
        )

    def _snapshot(self, entry: Entry) -> Snapshot:
        owner = None if entry.owner is None else copy_of(entry.owner, entry.kept)
        subject, args = subject_of(entry, owner)
        span, name = place_of(subject)
        made = self._made(name, span, subject, entry.kept, args, entry.where)
        enclosing = tuple(
            self._snapshot(o) for o in entry.outer if o.holds_tensors and o.kept.intact
        )
        return replace(made, enclosing=enclosing)

    def _made(
        self, name: str, span: Span, module: Any, kept: KeptCall, args: tuple[Any, ...], where: str
    ) -> Snapshot:
        args, kwargs, changed = lively(args, kept.kwargs)
        notes = [f"in {self.label}"] if self.label else []
        if changed:
            notes.append("its input is the same everywhere: random numbers stand in for it")
        return Snapshot(
            name,
            module,
            args,
            kwargs,
            span,
            where,
            notes=tuple(notes),
            autocast=kept.autocast,
            defaults=kept.defaults,
        )

    def flat(self, spots: dict[CodeType, Spots]) -> None:
        """Note attention in bodies of scripts, which cannot be called again."""
        for code, one in spots.items():
            self._flat.setdefault(code, Spots()).join(one)

    def seen(self, scripted: tuple[tuple[Any, Any], ...]) -> Seen:
        """Return what was copied, in the order of the program, and what could not be."""
        snapshots = []
        for one in list(self._order):
            if isinstance(one, Snapshot):
                snapshots.append(one)
                continue
            record, known = one
            if record.snapshot is not None:
                outer = tuple(r.snapshot for r in record.outer[:LEVELS] if r.snapshot is not None)
                whole = replace(record.snapshot, enclosing=outer)
                snapshots.append(with_count(whole, len(known.members)))
        names = {s.name for s in snapshots}
        left_out = [n for n in self._left_out.values() if not _names_of(n.target) & names]
        return Seen(
            tuple(snapshots),
            tuple(left_out),
            tuple(self._in_scripts()),
            tuple(self._crashes),
            scripted,
        )

    def _in_scripts(self) -> Iterator[NotChecked]:
        for code, spots in self._flat.items():
            if spots.enough():
                place = f"{self._relative(code.co_filename)}"
                script = code.co_name == "<module>"
                yield NotChecked(
                    "attention is computed in the body of the script, which cannot be called again"
                    if script
                    else "attention is computed from tensors that are made inside the function",
                    "put it in a function or nn.Module that takes them as arguments",
                    target=place if script else f"{place}::{code.co_qualname}",
                )

    def leave_out(self, path: str, name: str, why: str) -> None:
        """Note a call that cannot be judged."""
        text = f"{self._relative(path)}::{name}"
        self._left_out.setdefault(text, NotChecked(why, target=text))

    def where(self, frame: FrameType | None) -> str:
        """Return the innermost place in user code outside `frame`, itself included: "train.py:34"."""
        while frame is not None:
            path = frame.f_code.co_filename
            if self._is_user(path):
                return f"{self._relative(path)}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _relative(self, path: str) -> str:
        with contextlib.suppress(ValueError):
            return str(Path(path).relative_to(self._cwd))
        return path

    def crashed(self, error: Exception) -> None:
        """Note an error of ours, which must not reach the program."""
        self._crashes.append("".join(traceback.format_exception(error)))


def _names_of(target: str) -> set[str]:
    """Return the name in ``a.py::A.forward``, and that of its class: copied, it was seen elsewhere."""
    name = target.partition("::")[2]
    return {name, name.rpartition(".")[0]} - {""}
