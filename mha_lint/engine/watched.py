"""Judge what a watcher has seen: of nested calls the innermost that holds an attention site."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from functools import partial

import torch

from mha_lint.capture.frames import is_user_file as is_user_file
from mha_lint.engine.live import judge_call, spec_of
from mha_lint.engine.run import Progress, Work, run
from mha_lint.engine.target import Judged
from mha_lint.model.contract import EXPECTATIONS, unknown_expectation
from mha_lint.model.finding import Crash
from mha_lint.model.report import NotChecked, RunReport, Status
from mha_lint.model.settings import Settings, UsageError
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.targets.live import Seen, Snapshot, Watcher
from mha_lint.targets.live.process import unscripted


def watcher(
    cwd: str, *, stop_after: int | None = None, is_user: Callable[[str], bool] = is_user_file
) -> Watcher:
    """Return a watcher of the program that this process is about to run."""
    return Watcher(is_user, cwd=cwd, stop_after=stop_after)


def check_watched(
    seen: Seen,
    settings: Settings,
    progress: Progress | None = None,
    *,
    expect: tuple[str, ...] = (),
    flat: bool = True,
) -> RunReport:
    """Judge every call of `seen`; with `flat`, what no function can be called for is not checked.

    Raises:
        UsageError: a rule or a device that is asked for is not there, or `expect` has another word.
    """
    for word in expect:
        if word not in EXPECTATIONS:
            raise UsageError(unknown_expectation(word))
    judged: dict[int, Judged] = {}
    jobs: list[tuple[TargetSpec | NotChecked, Work | None]] = [
        (spec_of(one, settings, expect, stated=False), partial(_innermost, one, settings, expect, judged))
        for one in seen.snapshots
    ]  # fmt: skip
    jobs += [(one, None) for one in (*seen.left_out, *(seen.flat if flat else ()))]
    with unscripted(seen.scripted), _usual_defaults():
        report = run(jobs, settings, progress, rules=True)
    if not seen.crashes:
        return report
    crashes = tuple(
        Crash("watcher", "the running program", text.strip().splitlines()[-1], text)
        for text in dict.fromkeys(seen.crashes)
    )
    return dataclasses.replace(report, crashes=(*report.crashes, *crashes))


@contextlib.contextmanager
def _usual_defaults() -> Iterator[None]:
    """Make new tensors where and as we do, and log nothing, whatever the program has set."""
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    torch.set_default_dtype(torch.float32)
    if device.type != "cpu":
        torch.set_default_device(None)
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # its loggers write to streams that are no longer sys.stderr
    try:
        yield
    finally:
        logging.disable(level)
        torch.set_default_dtype(dtype)
        if device.type != "cpu":
            torch.set_default_device(device)


def _innermost(
    snapshot: Snapshot,
    settings: Settings,
    expect: tuple[str, ...],
    judged: dict[int, Judged],
    rules: list[LoadedRule],
) -> Judged:
    """Judge `snapshot`, or where that holds no site, or cannot be called alone, what it lies in."""
    first = None
    for one in (snapshot, *snapshot.enclosing):
        known = judged.get(id(one))
        if known is None:
            known = judged[id(one)] = judge_call(one, settings, expect, rules, stated=False)
        if known.report.status in (Status.CHECKED, Status.UNDECIDED) or known.report.findings:
            return known
        first = first or known
    assert first is not None
    return first
