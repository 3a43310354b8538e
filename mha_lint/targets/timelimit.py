"""Stop user code that runs too long: a timer signal in the main thread, else an exception that is
set from a second thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

AGAIN = 0.5
"""Seconds after which the limit strikes again, for code that swallows BaseException."""


class TimeLimitError(BaseException):
    """User code ran longer than it may; no ``except Exception`` of the user catches it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeLimitError` inside the block after `seconds`, and again while it goes on."""
    if seconds <= 0:
        raise TimeLimitError
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        with _by_signal(seconds):
            yield
    else:
        with _by_thread(seconds):
            yield


@contextlib.contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    def strike(_signal: int, _frame: FrameType | None) -> None:
        raise TimeLimitError

    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, strike)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # an outer limit was running: let it strike when it would have
            rest = max(left - (time.monotonic() - started), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, rest, interval)


@contextlib.contextmanager
def _by_thread(seconds: float) -> Iterator[None]:
    target, done, lock = threading.get_ident(), threading.Event(), threading.Lock()

    def watch() -> None:
        wait = seconds
        while not done.wait(wait):
            wait = AGAIN
            with lock:
                if not done.is_set():
                    _raise_in(target, TimeLimitError)

    watcher = threading.Thread(target=watch, daemon=True, name="mha-lint time limit")
    watcher.start()
    try:
        yield
    finally:
        with lock:
            done.set()
        _raise_in(target, None)  # one that was set but not yet delivered must not strike outside


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Set (or, with None, clear) the asynchronous exception of `thread`."""
    value = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)
