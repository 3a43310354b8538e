"""What is known of one thread while it is watched, and of one call of a module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from mha_lint.targets.live.keep import KeptCall
from mha_lint.targets.live.snapshot import Snapshot
from mha_lint.targets.live.watch_spots import SpotMode, Spots

if TYPE_CHECKING:
    from mha_lint.targets.live.watch_frames import FrameTracker


class Known:
    """What is known of all calls of one kind: same class, same widths, same kinds of arguments.

    ``record``: the call that was copied, if it holds attention or is needed around it. ``spots``:
    what it leaves to whatever calls it.
    """

    __slots__ = ("attends", "members", "record", "serial", "spots")

    def __init__(self, record: Record | None, spots: Spots, *, attends: bool) -> None:
        """Hold what one call showed."""
        self.record = record
        self.spots = spots
        self.attends = attends
        self.serial = -1
        self.members: set[int] = set()


class Record:
    """One running call of a module that was not seen before."""

    __slots__ = (
        "first", "kept", "key", "module", "outer", "own", "parallel", "serial", "snapshot",
        "spots", "up", "wanted", "where",
    )  # fmt: skip

    def __init__(self, module: nn.Module, key: Any, up: Record | None, *, own: bool) -> None:
        """`own`: the class is the user's, not torch's; `up`: the record around it."""
        self.module: nn.Module | None = module
        self.key = key
        self.up = up
        self.own = own
        self.spots = Spots()
        self.kept: KeptCall | None = None
        self.where = ""
        self.outer: tuple[Record, ...] = ()
        self.parallel: dict[tuple[type, int], set[int]] = {}
        self.wanted = False
        self.first: tuple[Any, ...] = ()
        self.serial = 0
        self.snapshot: Snapshot | None = None

    def let_go(self) -> None:
        """Drop what only the running call needed."""
        self.module = None
        self.kept = None
        self.up = None
        self.first = ()
        self.parallel.clear()


class ThreadState:
    """The running modules of one thread, and the mode that looks on."""

    __slots__ = ("busy", "chain", "frames", "mode", "on", "record", "serial")

    def __init__(self) -> None:
        """Start outside all modules, with the mode off."""
        self.record: Record | None = None
        self.chain: list[Record | None] = []
        self.busy = False
        self.on = False
        self.serial = 0
        self.frames: FrameTracker | None = None
        self.mode = SpotMode(self)

    def spot(self, kind: int) -> None:
        """Note one spot, for the running call or function."""
        if self.record is not None:
            self.record.spots.seen[kind] += 1
        elif self.frames is not None:
            self.frames.spot(kind)

    def start(self) -> bool:
        """Put the mode on top of torch's stack of modes; return whether it was not there."""
        if self.on:
            return False
        torch._C._push_on_torch_function_stack(self.mode)
        self.on = True
        return True

    def pause(self) -> bool:
        """Take the mode off the stack if it is on top, where `start` puts it back; say whether it was.

        The program's own modes must leave in the order in which they came.
        """
        height = torch._C._len_torch_function_stack()
        if not height or torch._C._get_function_stack_at(height - 1) is not self.mode:
            return False
        torch._C._pop_torch_function_stack()
        self.on = False
        return True

    def stop(self) -> None:
        """Take the mode off the stack, wherever it stands."""
        height = torch._C._len_torch_function_stack()
        self.on = False
        if all(torch._C._get_function_stack_at(i) is not self.mode for i in range(height)):
            return
        above = []
        while (mode := torch._C._pop_torch_function_stack()) is not self.mode:
            above.append(mode)
        for mode in reversed(above):
            torch._C._push_on_torch_function_stack(mode)

    @contextlib.contextmanager
    def private(self) -> Iterator[None]:
        """Run the block unseen, by this watcher and by the program's own modes."""
        before, self.busy = self.busy, True
        try:
            with (
                torch._C.DisableTorchFunction(),
                torch.no_grad(),
                torch.inference_mode(False),
                _without_dispatch(),
            ):
                yield
        finally:
            self.busy = before


@contextlib.contextmanager
def _without_dispatch() -> Iterator[None]:
    if not torch._C._len_torch_dispatch_stack():
        yield
        return
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        yield
