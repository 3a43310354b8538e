"""What a forked worker does: take its limits on, judge one target, write the report, end."""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import mmap
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch

from mha_lint.engine.one import judge_one, work_of
from mha_lint.engine.unchecked import not_checked
from mha_lint.model import wire
from mha_lint.model.report import NotChecked, Status
from mha_lint.model.speakable import speakable
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.runner import linux
from mha_lint.runner.jobs import Outcome, Plan
from mha_lint.runner.limits import homes, limit_resources
from mha_lint.runner.preload import imported
from mha_lint.runner.reads import Reads

_exit = os._exit
"""Kept: what user code puts in its place must not keep a worker from ending."""

_HIGH = 1000
"""Number of the descriptor that takes the report: programs that close what they do not know begin
with the low ones."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What the server hands to a worker beside its target."""

    plan: Plan
    rules: Sequence[LoadedRule]
    spared: tuple[int, ...]
    tasks: int
    confined: bool


SPARE = 64 << 20
"""Bytes of addresses that are kept free for the report of a target that has taken all others."""


def work(
    spec: TargetSpec, setting: Setting, folder: Path, result: int, output: int, *, apart: bool
) -> NoReturn:
    """Judge `spec`, write its outcome to the descriptor `result`, and end the process.

    `folder`: an empty one, the target's home; `output`: takes what is printed; `apart`: this is the
    first process of its own namespace.
    """
    code = 70
    try:
        result = _alone(result, output)
        if apart and linux.own_mounts():
            linux.own_proc()
        faulthandler.enable(file=2)
        os.environ.update(homes(folder))
        for place in homes(folder).values():
            Path(place).mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            os.chdir(setting.plan.settings.cwd)
        limit_resources(
            setting.plan.limits,
            setting.plan.settings.timeout,
            tasks=setting.tasks,
            memory=not torch.cuda.is_available(),
        )
        if setting.confined:
            linux.without_powers()
            linux.without_network(setting.spared)
        reads = Reads(str(folder))
        reads.watch()
        spare = mmap.mmap(-1, SPARE)
        _write(result, wire.dump(_outcome(spec, setting, reads, spare)))
        code = 0
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(2, f"\n{type(error).__name__}\n".encode())
            import traceback

            os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        _exit(code)


def _outcome(spec: TargetSpec, setting: Setting, reads: Reads, spare: mmap.mmap) -> Outcome:
    settings = setting.plan.settings
    try:
        report, crashes = judge_one(spec, work_of(spec, settings), settings, setting.rules)
    except Exception:
        raise
    except BaseException as raised:  # what no code catches that expects errors
        error = speakable(raised)
        why = f"it raised {type(error).__name__}: {error}"
        report, crashes = not_checked(NotChecked(why), spec), []
    finally:
        spare.close()
    rested = reads.result()
    quick = report.status is not Status.FAILED or report.seconds < settings.timeout / 2
    lasting = rested is not None and quick and not crashes
    return Outcome(report, tuple(crashes), rested or (), lasting, imported())


def _alone(result: int, output: int) -> int:
    """Leave the server's session, signals and files; return the descriptor that takes the report."""
    linux.die_with_parent()
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    with contextlib.suppress(OSError):  # where so many are not allowed, it stays where it is
        high = os.dup2(result, _HIGH, inheritable=False)
        os.closerange(3, high)
        os.closerange(high + 1, high + 3000)
        return high
    os.closerange(3, result)
    os.closerange(result + 1, 3000)
    return result


def _write(descriptor: int, text: bytes) -> None:
    view = memoryview(len(text).to_bytes(8, "big") + text)
    while view:
        view = view[os.write(descriptor, view) :]


def silent() -> None:
    """Send what this process itself prints nowhere."""
    sys.stdout.flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
