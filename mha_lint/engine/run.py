"""Many targets in this process, one after the other; what one does never reaches the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from mha_lint.engine.joined import Rules, expanded, joined, rules_of
from mha_lint.engine.one import Work as Work
from mha_lint.engine.one import judge_one, work_of
from mha_lint.model.finding import Crash
from mha_lint.model.report import NotChecked, RunReport, TargetReport
from mha_lint.model.settings import Settings, UsageError
from mha_lint.model.target import TargetSpec

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called as (done, total, name of the target that comes next)."""


def check(
    specs: Sequence[TargetSpec | NotChecked], settings: Settings, progress: Progress | None = None
) -> RunReport:
    """Judge every target of `specs` and return what was found; user code never raises through.

    Raises:
        UsageError: a rule or a device that is asked for is not there.
    """
    return run(_jobs(specs, settings), settings, progress, rules=True)


def inspect(specs: Sequence[TargetSpec | NotChecked], settings: Settings) -> RunReport:
    """Return the sites of every target, with their sizes and costs, without judging them."""
    return run(_jobs(specs, settings), settings, None, rules=False)


def _jobs(
    specs: Sequence[TargetSpec | NotChecked], settings: Settings
) -> list[tuple[TargetSpec | NotChecked, Work | None]]:
    """Return every target that `specs` names with what judges it."""
    return [(one, work_of(one, settings)) for one in expanded(specs, settings)]


def run(
    jobs: Sequence[tuple[TargetSpec | NotChecked, Work | None]],
    settings: Settings,
    progress: Progress | None,
    *,
    rules: bool,
) -> RunReport:
    """Judge every target by its own work, and put the reports together.

    Raises:
        UsageError: a rule or a device that is asked for is not there.
    """
    start = time.perf_counter()
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(NO_CUDA)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one thread: the same sums in the same order, so the same bytes
    try:
        chosen = rules_of(settings) if rules else Rules()
        targets: list[TargetReport] = []
        crashes: list[Crash] = []
        for done, (one, work) in enumerate(jobs):
            if progress is not None:
                progress(done, len(jobs), one.text if isinstance(one, TargetSpec) else one.target)
            report, broken = judge_one(one, work, settings, chosen.run)
            targets.append(report)
            crashes += broken
        if progress is not None:
            progress(len(jobs), len(jobs), "")
    finally:
        torch.set_num_threads(threads)
    return joined(targets, crashes, chosen, settings, started=start)


NO_CUDA = "--device cuda: this machine has no CUDA device"
