"""What the command, the server and a worker tell each other."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mha_lint.model.finding import Crash
from mha_lint.model.report import TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec

GRACE = 1.0
"""Seconds behind its time limit after which a target that did not stop by itself is killed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one target may take: ``memory``, bytes that its process may grow by; ``processes`` that
    it may have at a time; ``file_size``, bytes of a file that it writes."""

    memory: int = 8 << 30
    processes: int = 64
    file_size: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What all targets of a run have in common; ``rules``: whether they are judged by any."""

    settings: Settings
    limits: Limits = Limits()
    rules: bool = True


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file that a target's code read or imported, and its content's SHA-256 ("": there was none)."""

    path: str
    digest: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one target.

    ``reads``: the files of the user that it rests on. ``lasting``: the same files give the same
    report again: nothing of it came of a limit, a signal or the machine. ``imported``: packages that
    it took long to import.
    """

    report: TargetReport
    crashes: tuple[Crash, ...] = ()
    reads: tuple[FileRead, ...] = ()
    lasting: bool = False
    imported: tuple[str, ...] = ()


class End(enum.StrEnum):
    """How a worker came to its end."""

    DONE = "done"
    TIME = "time"
    PROCESSES = "processes"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Ended:
    """How the worker of job ``number`` ended; its result follows as ``size`` bytes.

    ``code``: its exit code, negative for the signal that killed it. ``said``: the last of what it
    wrote to stdout and stderr. ``seconds``: how long it ran, by a clock that it cannot touch.
    """

    number: int
    end: End
    code: int
    size: int
    said: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The server is there; ``confined``: what of the system keeps workers in, as words."""

    cuda: bool
    confined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Judge ``spec`` as job ``number``; about ``left`` more are to come.

    ``preload``: packages that these need, to be imported before; no worker runs meanwhile.
    """

    number: int
    spec: TargetSpec
    left: int = 0
    preload: tuple[str, ...] = ()
