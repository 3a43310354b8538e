"""Why a worker ended without a report, in words that help its user."""

from __future__ import annotations

import signal

from mha_lint.model.report import NotChecked
from mha_lint.model.settings import Settings
from mha_lint.runner.jobs import End, Ended, Limits

LINES, WIDTH = 3, 200
"""What is shown of the last that a process wrote; with -v, all that was kept."""

_MEANINGS = {
    "SIGSEGV": "a segmentation fault in native code",
    "SIGABRT": "native code gave up",
    "SIGBUS": "a bad memory access in native code",
    "SIGFPE": "a division by zero in native code",
    "SIGILL": "an instruction that this processor does not know",
    "SIGKILL": "which the system does when memory runs out",
    "SIGXCPU": "its processor time was used up",
    "SIGXFSZ": "a file grew too large",
}


def out_of_time(settings: Settings, ended: Ended) -> NotChecked:
    """Return why a target was killed behind its time limit."""
    return NotChecked(
        f"it was not judged within {settings.timeout:g} s",
        "give it more time with --timeout, or a smaller --build and --call",
        ended.said,
    )


def ended_early(ended: Ended, limits: Limits) -> NotChecked:
    """Return why the process of a target ended before it was judged."""
    hint = "pass a --build and --call that avoid this, or run it with --no-isolation to debug it"
    if ended.end is End.PROCESSES:
        why = f"it was ended: it had started more than {limits.processes} processes"
    elif ended.code < 0:
        aborted = "Fatal Python error: Aborted" in ended.said
        number = signal.SIGABRT if aborted and ended.code == -signal.SIGSEGV else -ended.code
        why = f"its process was killed by {_signal(number)}"
    else:
        why = f"its process ended by itself with exit code {ended.code} before it was judged"
    last = _last(ended.said)
    return NotChecked(f"{why}; it wrote last: {last}" if last else why, hint, ended.said)


def _signal(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    meaning = _MEANINGS.get(name)
    return f"{name} ({meaning})" if meaning else name


def _last(said: str) -> str:
    """Return the last lines of a process's output as one; of a fatal error, where it happened."""
    _, fatal, frames = said.rpartition(_FATAL)
    if fatal:
        lines = [line.strip() for line in frames.splitlines() if line.strip().startswith("File ")]
        lines = lines[:LINES]
    else:
        lines = [line.strip() for line in said.splitlines() if line.strip()][-LINES:]
    shown = " | ".join("".join(c if c.isprintable() else " " for c in line) for line in lines)
    return shown if len(shown) <= WIDTH else _cut(shown, from_start=bool(fatal))


_FATAL = "(most recent call first):"
"""What `faulthandler` writes before the frames of the thread that failed."""


def _cut(text: str, *, from_start: bool) -> str:
    return f"{text[:WIDTH]}..." if from_start else f"...{text[-WIDTH:]}"
