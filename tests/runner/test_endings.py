"""Why a worker ended, in words."""

from __future__ import annotations

import pytest

from mha_lint.model.settings import Settings
from mha_lint.runner.endings import WIDTH, ended_early, out_of_time
from mha_lint.runner.jobs import End, Ended, Limits

FATAL = """\
Fatal Python error: Segmentation fault

Thread 0x1 (most recent call first):
  File "waiting.py", line 1 in wait

Current thread 0x2 (most recent call first):
  File "ctypes/__init__.py", line 519 in string_at
  File "model.py", line 20 in forward
  File "module.py", line 1 in _call
  File "far.py", line 1 in away

Extension modules: numpy._core, torch._C (total: 2)
"""


def reason(code: int, said: str = "", end: End = End.LOST) -> str:
    return ended_early(Ended(0, end, code, 0, said), Limits(processes=7)).reason


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (0, "its process ended by itself with exit code 0 before it was judged"),
        (3, "its process ended by itself with exit code 3 before it was judged"),
        (-9, "its process was killed by SIGKILL (which the system does when memory runs out)"),
        (-11, "its process was killed by SIGSEGV (a segmentation fault in native code)"),
        (-15, "its process was killed by SIGTERM"),
        (-200, "its process was killed by signal 200"),
    ],
)
def test_the_signal_or_exit_code_is_named(code: int, why: str) -> None:
    assert reason(code) == why


def test_too_many_processes_are_told_whatever_the_code() -> None:
    assert reason(-9, end=End.PROCESSES) == "it was ended: it had started more than 7 processes"


def test_the_last_lines_are_shown_in_one() -> None:
    assert reason(1, "a\n\n b\nc\nd \x1b[2J\n").endswith("; it wrote last: b | c | d  [2J")
    long = reason(1, "x" * 1000)
    assert long.endswith(f"it wrote last: ...{'x' * WIDTH}")


def test_of_a_fatal_error_the_place_is_shown() -> None:
    shown = 'File "ctypes/__init__.py", line 519 in string_at | File "model.py", line 20 in forward'
    assert reason(-11, FATAL).endswith(
        f'; it wrote last: {shown} | File "module.py", line 1 in _call'
    )


def test_an_abort_in_a_namespace_is_told_as_such() -> None:
    said = FATAL.replace("Segmentation fault", "Aborted")
    assert "killed by SIGABRT (native code gave up)" in reason(-11, said)
    assert "killed by SIGSEGV" in reason(-11, FATAL)


def test_time_and_what_was_said_are_kept() -> None:
    found = out_of_time(Settings(cwd="/", timeout=2.5), Ended(0, End.TIME, -9, 0, "told"))
    assert (found.reason, found.detail) == ("it was not judged within 2.5 s", "told")
