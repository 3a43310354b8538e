"""Where in the user's source an operation was called, and inside which submodule.

Frames are walked, not hooks: that also sees modules whose ``forward`` is called directly and helper
methods of a module. Raw positions are ``(code, f_lasti)`` pairs; lines and columns are worked out
afterwards, once for each distinct position.
"""

from __future__ import annotations

import inspect
import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType

import torch

from mha_lint.model.lines import line_of
from mha_lint.model.source import Frame, Span

Position = tuple[CodeType, int]
_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_CALL = "_wrapped_call_impl"
_PLUMBING = (_CALL, "_call_impl", "__torch_function__")
_BETWEEN = frozenset(getattr(torch.nn.Module, name).__code__ for name in (_CALL, "_call_impl"))
"""What lies between the call of a module and its ``forward``."""
_TORCH = str(Path(torch.__file__).parent) + os.sep
_PACKAGE = str(Path(__file__).parent.parent) + os.sep
_STANDARD = tuple({sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"]})
_SITE = tuple({sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]})


def is_user_file(path: str) -> bool:
    """Tell whether code of `path` is the user's: not torch, mha_lint, einops or Python itself."""
    if path.startswith(("<frozen", "<string>", "<__array_function__")):
        return False
    if path.startswith((_TORCH, _PACKAGE)):
        return False
    if not path.startswith(_SITE):
        return not path.startswith(_STANDARD)
    return "einops" not in Path(path).parts  # a line inside rearrange tells nobody anything


class Place:
    """What is the same for all operations of one running frame.

    Made while the call runs, so it only keeps what later cannot be had: where the frames outside
    stand. Which submodule runs is worked out when `FrameWalker.running` asks for it.
    """

    __slots__ = (
        "anew", "call", "code", "forward", "frame", "module", "outer", "owner", "up", "user",
    )  # fmt: skip

    def __init__(
        self,
        frame: FrameType | None,
        up: Place | None,
        outer: tuple[Position, ...],
        forward: tuple[Position, ...],
        user: bool,
        anew: bool,
    ) -> None:
        """Hold a frame, the place outside it, and the positions of the user frames outside.

        `forward` is the position of the outermost ``forward`` outside it; `anew` tells that a
        module is called through its ``__call__`` in between.
        """
        self.frame = frame
        self.code = None if frame is None else frame.f_code
        self.up = up
        self.outer = outer
        self.forward = forward
        self.user = user
        self.anew = anew
        self.owner: int | None = None
        self.module = ""
        self.call = 0

    def positions(self, lasti: int) -> tuple[Position, ...]:
        """Return the user positions, outermost first, of an operation at `lasti` in the frame.

        When no user code runs (a module of torch itself), its outermost ``forward`` stands for it.
        """
        if self.code is None:
            return self.outer or self.forward
        if self.user:
            return (*self.outer, (self.code, lasti))
        return self.outer or self.forward or ((self.code, lasti),)


class FrameWalker:
    """Locate operations; one walker serves one recording, and keeps its frames alive until then."""

    def __init__(self, modules: Mapping[int, str]) -> None:
        """Take the qualified names of the known modules by identity."""
        self._modules = modules
        self.places: dict[FrameType, Place] = {}
        """What is known of the frames that run, or have run."""
        self._codes: dict[CodeType, tuple[bool, bool, str | None]] = {}
        self._calls = 0
        self.root = Place(None, None, (), (), False, False)
        self.root.owner = 0
        self.base: FrameType | None = None

    def place(self, frame: FrameType | None) -> Place:
        """Return the place of what `frame` executes."""
        if frame is None or frame is self.base:
            return self.root
        place = self.places.get(frame)
        if place is not None:
            return place
        # A frame that is no generator runs once: its callers stand still while it lives, so what
        # lies outside it is worked out once and kept.
        back, anew = frame.f_back, False
        while back is not None and back.f_code in _BETWEEN and back is not self.base:
            back, anew = back.f_back, True
        up = self.root if back is None else self.places.get(back) or self.place(back)
        outer, forward = up.outer, up.forward
        code = frame.f_code
        user, ours, _ = self._codes.get(code) or self._code(code)
        if back is not None and up.code is not None:
            if up.user:
                outer = (*outer, (up.code, back.f_lasti))
            elif not forward and (ours or up.code.co_name == "forward"):
                forward = ((up.code, back.f_lasti),)
        place = Place(frame, up, outer, forward, user, anew)
        if ours:
            place.code = None
        if not code.co_flags & _RESUMABLE:
            self.places[frame] = place
        return place

    def running(self, place: Place) -> Place:
        """Fill in the running submodule of `place`, and the number of its call."""
        frame, up = place.frame, place.up
        if place.owner is not None or frame is None or up is None:
            return place
        self.running(up)
        # A module called through its __call__ runs anew, even within itself.
        outer_owner = 0 if place.anew else up.owner
        place.owner, place.module, place.call = outer_owner, up.module, up.call
        first = self._code(frame.f_code)[2]
        if first is None:
            return place
        owner = id(frame.f_locals.get(first))
        name = self._modules.get(owner)
        if name is not None:
            if owner != outer_owner:
                self._calls += 1
                place.call = self._calls
            place.owner, place.module = owner, name
        return place

    def clear(self) -> None:
        """Let go of the frames."""
        for place in self.places.values():
            place.frame = None
        self.places.clear()
        self.base = None

    def _code(self, code: CodeType) -> tuple[bool, bool, str | None]:
        """Return whether `code` is the user's or ours, and the argument that may be a module."""
        known = self._codes.get(code)
        if known is None:
            first = code.co_varnames[0] if code.co_argcount else None
            if code.co_filename.startswith(_TORCH) and code.co_name in _PLUMBING:
                first = None
            ours = code.co_filename.startswith(_PACKAGE)
            known = self._codes[code] = (is_user_file(code.co_filename), ours, first)
        return known


class Resolver:
    """Turn raw positions into frames with spans."""

    def __init__(self) -> None:
        """Start with nothing resolved."""
        self._frames: dict[Position, Frame] = {}
        self._stacks: dict[tuple[Position, ...], tuple[Frame, ...]] = {}
        self._tables: dict[
            CodeType, list[tuple[int | None, int | None, int | None, int | None]]
        ] = {}

    def stack(self, positions: tuple[Position, ...]) -> tuple[Frame, ...]:
        """Return one frame for each position."""
        known = self._stacks.get(positions)
        if known is None:
            known = self._stacks[positions] = tuple(self._frame(p) for p in positions)
        return known

    def _frame(self, position: Position) -> Frame:
        known = self._frames.get(position)
        if known is None:
            known = self._frames[position] = self._resolve(*position)
        return known

    def _resolve(self, code: CodeType, lasti: int) -> Frame:
        table = self._tables.get(code)
        if table is None:
            table = self._tables[code] = list(code.co_positions())
        index = lasti // 2
        line, end_line, column, end_column = (
            table[index] if 0 <= index < len(table) else (None, None, None, None)
        )
        path = code.co_filename
        first = line if line is not None else code.co_firstlineno
        last = end_line if end_line is not None else first
        span = Span(
            path,
            first,
            _characters(path, first, column) + 1,
            last,
            _characters(path, last, end_column) + 1,
        )
        return Frame(span, code.co_qualname)


def _characters(path: str, line: int, offset: int | None) -> int:
    """Turn the UTF-8 byte `offset` that Python keeps into characters."""
    if not offset:
        return 0
    text = line_of(path, line)
    if not text or text.isascii():
        return offset
    return len(text.encode()[:offset].decode(errors="replace"))
