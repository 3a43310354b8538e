"""Where in the user's source an operation was called, and inside which submodule.

Frames are walked, not hooks: that also sees modules whose ``forward`` is called directly and helper
methods of a module. Raw positions are ``(code, f_lasti)`` pairs; lines and columns are worked out
afterwards, once for each distinct position.
"""

from __future__ import annotations

import inspect
import linecache
import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FrameType

import torch

from mha_lint.model.source import Frame, Span

Position = tuple[CodeType, int]
_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_CALL = "_wrapped_call_impl"
_PLUMBING = (_CALL, "_call_impl", "__torch_function__")
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
    """What is the same for all operations of one running frame."""

    __slots__ = ("call", "module", "outer", "owner")

    def __init__(self, outer: tuple[Position, ...], owner: int, module: str, call: int) -> None:
        """Hold the user positions outside the frame, and the running submodule and its call."""
        self.outer = outer
        self.owner = owner
        self.module = module
        self.call = call


class FrameWalker:
    """Locate operations; one walker serves one recording, and keeps its frames alive until then."""

    def __init__(self, modules: Mapping[int, str]) -> None:
        """Take the qualified names of the known modules by identity."""
        self._modules = modules
        self._places: dict[FrameType, Place] = {}
        self._codes: dict[CodeType, tuple[bool, str | None]] = {}
        self._own_codes: dict[CodeType, bool] = {}
        self._calls = 0
        self._root = Place((), 0, "", 0)
        self.base: FrameType | None = None

    def locate(self, frame: FrameType | None) -> tuple[tuple[Position, ...], Place]:
        """Return the user positions, outermost first, and the place of what `frame` executes."""
        # Our own frames and torch's dispatch lie between; their places need no cache entry.
        while frame is not None and frame is not self.base and self._is_ours(frame.f_code):
            frame = frame.f_back
        if frame is None or frame is self.base:
            return (), self._root
        place = self._places.get(frame) or self._place(frame)
        if self._code(frame.f_code)[0]:
            return (*place.outer, (frame.f_code, frame.f_lasti)), place
        return place.outer or self._forward_of(frame), place

    def clear(self) -> None:
        """Let go of the frames."""
        self._places.clear()
        self.base = None

    def _is_ours(self, code: CodeType) -> bool:
        known = self._own_codes.get(code)
        if known is None:
            known = self._own_codes[code] = code.co_filename.startswith(_PACKAGE)
        return known

    def _code(self, code: CodeType) -> tuple[bool, str | None]:
        """Return whether `code` is the user's, and the argument that may be a running module."""
        known = self._codes.get(code)
        if known is None:
            first = code.co_varnames[0] if code.co_argcount else None
            if code.co_filename.startswith(_TORCH) and code.co_name in _PLUMBING:
                first = None
            known = self._codes[code] = (is_user_file(code.co_filename), first)
        return known

    def _place(self, frame: FrameType) -> Place:
        # A frame that is no generator runs once: its callers stand still while it lives, so what
        # lies outside it is worked out once and kept.
        place = self._places.get(frame)
        if place is not None:
            return place
        back = frame.f_back
        if back is None or back is self.base:
            up = self._root
            outer: tuple[Position, ...] = ()
        else:
            up = self._place(back)
            outer = up.outer
            if self._code(back.f_code)[0]:
                outer = (*outer, (back.f_code, back.f_lasti))
        place = self._own(frame, up, outer)
        if not frame.f_code.co_flags & _RESUMABLE:
            self._places[frame] = place
        return place

    def _own(self, frame: FrameType, up: Place, outer: tuple[Position, ...]) -> Place:
        first = self._code(frame.f_code)[1]
        if first is None:
            # A module called through its __call__ runs anew, even within itself.
            anew = frame.f_code.co_name == _CALL
            return Place(outer, 0 if anew else up.owner, up.module, up.call)
        owner = id(frame.f_locals.get(first))
        name = self._modules.get(owner)
        if name is None:
            return Place(outer, up.owner, up.module, up.call)
        if owner == up.owner:
            return Place(outer, owner, name, up.call)
        self._calls += 1
        return Place(outer, owner, name, self._calls)

    def _forward_of(self, frame: FrameType) -> tuple[Position, ...]:
        """Return the outermost ``forward`` when no user code runs (a module of torch itself)."""
        found: tuple[Position, ...] = ()
        walk: FrameType | None = frame
        while walk is not None and walk is not self.base:
            if walk.f_code.co_name == "forward":
                found = ((walk.f_code, walk.f_lasti),)
            walk = walk.f_back
        return found or ((frame.f_code, frame.f_lasti),)


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
    text = linecache.getline(path, line)
    if not text or text.isascii():
        return offset
    return len(text.encode()[:offset].decode(errors="replace"))
