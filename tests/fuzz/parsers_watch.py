"""Watch one case of the fuzz: what may come out of a parser, how long it takes, what it holds.

A case is `Input` (what a user hands over) and is read by a `Parser`; anything but data or one of the
parser's own errors is a `Fault`, told by its kind and by the place in mha_lint where it came from.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import signal
import traceback
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

ROOT = Path(__file__).resolve().parents[2]
SLOWEST = 2.0
"""Seconds of computing that a case may take."""
PATIENCE = 15
"""So many times as long may pass on a clock: other processes take their share."""
MOST, MOST_EACH = 64 << 20, 1500
"""Bytes that a case may hold at once: so many, and so many for each byte of its input."""
LONGEST_MESSAGE = 1000


class TooSlowError(BaseException):
    """A case is not done in time. No Exception: no parser may take it for one of its own."""


class WrongError(Exception):
    """A parser gave data, and the data is wrong: ``what`` says how."""

    def __init__(self, what: str, shown: str = "") -> None:
        """Say what is wrong, and show it."""
        super().__init__(f"{what}: {shown!r}" if shown else what)
        self.what = what


@dataclass(frozen=True, slots=True)
class Parser:
    """One thing that reads what users write.

    ``cases``: its inputs; ``check``: reads one in an empty folder, and raises where something is
    wrong.
    """

    name: str
    cases: SearchStrategy[Any]
    check: Callable[[Any, Path], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong: ``kind`` and ``place`` are the same for what has the same cause."""

    parser: str
    kind: str
    place: str
    case: bytes
    trace: str


@contextlib.contextmanager
def in_time(seconds: float = SLOWEST) -> Iterator[None]:
    """Raise TooSlowError inside the block when it computes, or waits, for too long."""

    def stop(signum: int, frame: FrameType | None) -> None:
        what = "computes" if signum == signal.SIGPROF else "waits"
        raise TooSlowError(f"{what} for too long")

    kinds = (
        (signal.SIGPROF, signal.ITIMER_PROF, 1),
        (signal.SIGALRM, signal.ITIMER_REAL, PATIENCE),
    )
    before = [signal.signal(number, stop) for number, _, _ in kinds]
    try:
        for _, timer, times in kinds:
            signal.setitimer(timer, seconds * times)
        yield
    finally:
        for (number, timer, _), handler in zip(kinds, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def fault_of(
    parser: Parser, case: Any, folder: Path, *, weigh: bool = False, seconds: float = SLOWEST
) -> Fault | None:
    """Read `case`; return what went wrong, or None. `weigh`: watch its memory too."""
    try:
        with warnings.catch_warnings(), in_time(seconds * (4 if weigh else 1)):
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResourceWarning)
            if weigh:
                _weighed(parser, case, folder)
            else:
                parser.check(case, folder)
    except (Exception, TooSlowError) as error:
        return _fault(parser, case, error)
    finally:
        linecache.clearcache()
    return None


def _weighed(parser: Parser, case: Any, folder: Path) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        parser.check(case, folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > MOST + MOST_EACH * len(as_bytes(case)):
        raise WrongError("too much memory", f"{peak >> 20} MiB for {len(as_bytes(case))} bytes")


def as_bytes(case: Any) -> bytes:
    """Return a case as it goes into a file."""
    if isinstance(case, bytes):
        return case
    return (case if isinstance(case, str) else repr(case)).encode("utf-8", "surrogatepass")


def _fault(parser: Parser, case: Any, error: BaseException) -> Fault:
    frames = traceback.extract_tb(error.__traceback__)
    kind = type(error).__name__
    if isinstance(error, WrongError):
        kind += f": {error.what}"
    own = [f for f in frames if f.filename.startswith(str(ROOT / "mha_lint"))] or frames[:-1]
    if kind == "RecursionError":  # where it happens depends on the case: name where it begins
        own = own[:2]
    last = own[-1]
    name = Path(last.filename)
    shown = name.relative_to(ROOT) if name.is_relative_to(ROOT) else name.name
    place = f"{shown}:{last.lineno} {last.name}"
    told = traceback.format_exception(error, limit=-12, chain=False)
    return Fault(parser.name, kind, place, as_bytes(case), "".join(told)[-6000:])


def pick(values: Sequence[Any]) -> SearchStrategy[Any]:
    """Return one of `values`, which may be long: hypothesis shows all of them where it samples."""
    return st.integers(0, len(values) - 1).map(values.__getitem__)


def require(holds: bool, what: str, shown: str = "") -> None:
    """Say `what` is wrong unless it `holds`."""
    if not holds:
        raise WrongError(what, shown[:200])


def one_line(text: str, longest: int = LONGEST_MESSAGE) -> None:
    """Require that an error says something, in one line that can be read."""
    require(bool(text.strip()), "an empty message")
    require(len(text.splitlines()) == 1, "a message of several lines", text)
    require(text.isprintable(), "a message that cannot be printed", text)
    require(len(text) < longest, "a long message", text)
