"""A progress bar on stderr, for terminals only, once a run takes more than a second."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 1.0
"""Seconds before the bar appears."""

Report: TypeAlias = Callable[[int, int, str], None]
"""Takes how many targets are done, how many there are, and the name of the next one."""


@contextlib.contextmanager
def progress_bar(*, shown: bool) -> Iterator[Report | None]:
    """Yield what the engine calls before each target, or None where no bar is wanted."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.close()


class _Bar:
    def __init__(self) -> None:
        self._due = time.monotonic() + PATIENCE
        self._progress: Progress | None = None

    def __call__(self, done: int, total: int, name: str) -> None:
        if self._progress is None:
            if time.monotonic() < self._due or total < 2:
                return
            self._progress = self._start(total)
        task = self._progress.task_ids[0]
        self._progress.update(task, completed=done, total=total, description=name)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    @staticmethod
    def _start(total: int) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.table import Column

        name = TextColumn(
            "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)
        )
        progress = Progress(
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            name,
            console=Console(stderr=True),
            transient=True,
            expand=True,
            # User code's own prints must reach neither the bar nor the report.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        progress.add_task("", total=total)
        progress.start()
        return progress
