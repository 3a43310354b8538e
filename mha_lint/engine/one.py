"""One target, whatever it does: judged, or a report that says why not."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from mha_lint.engine.dispatch import judge_target
from mha_lint.engine.restore import restored
from mha_lint.engine.target import Judged
from mha_lint.engine.unchecked import not_checked
from mha_lint.model.finding import Crash
from mha_lint.model.report import NotChecked, Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.speakable import speakable
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.targets.tables import disturbances
from mha_lint.targets.timelimit import TimeLimitError, time_limit

_RARELY = (100_000, 20, 100)
"""Thresholds of the garbage collector; Python's own are (700, 10, 10)."""

Work: TypeAlias = Callable[[list[LoadedRule]], Judged]
"""Judges one target by the chosen rules."""


def work_of(spec: TargetSpec | NotChecked, settings: Settings) -> Work | None:
    """Return what judges `spec`; None for what is known not to be checked."""
    return None if isinstance(spec, NotChecked) else partial(judge_target, spec, settings)


def judge_one(
    one: TargetSpec | NotChecked, work: Work | None, settings: Settings, rules: Sequence[LoadedRule]
) -> tuple[TargetReport, list[Crash]]:
    """Judge one target by its own work, within the time limit; nothing is raised through.

    What it did to the process is undone. Return its report and what broke on our side.
    """
    start = time.perf_counter()
    if isinstance(one, NotChecked) or work is None:
        assert isinstance(one, NotChecked)
        return not_checked(one, None), []
    changed: list[str] = []
    tables: list[str] = []
    try:
        with (
            disturbances(tables),
            restored(changed),
            rarely_collected(),
            time_limit(settings.timeout),
        ):
            judged = work(list(rules))
        report, crashes = judged.report, judged.crashes
        if tables and report.status is Status.FAILED:
            reason = f"{report.reason}; it had changed or removed {_listed(tables)}"
            report = dataclasses.replace(report, reason=reason)
    except TimeLimitError:
        report, crashes = not_checked(out_of_time(settings), one), []
    except Exception as raised:  # a bug of ours: it must neither hide the other targets nor pass
        error = speakable(raised)
        text = "".join(traceback.format_exception(error))
        said = f"{type(error).__name__}: {error}"
        changed = list(dict.fromkeys([*changed, *tables]))
        if changed:
            why = f"it changed or removed {_listed(changed)}; judging it then failed: {said}"
            report, crashes = not_checked(NotChecked(why, "", text), one), []
        else:
            why = f"mha-lint itself failed on this target: {said}"
            report = not_checked(NotChecked(why, "please report this", text), one)
            crashes = [Crash("engine", one.text, said, text)]
    return dataclasses.replace(report, seconds=time.perf_counter() - start), crashes


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """Have the garbage collector look less often: a judgement makes many things that it then needs."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def out_of_time(settings: Settings) -> NotChecked:
    """Return why a target was given up when its time was over."""
    return NotChecked(
        f"it was not judged within {settings.timeout:g} s",
        "give it more time with --timeout, or a smaller --build and --call",
    )
