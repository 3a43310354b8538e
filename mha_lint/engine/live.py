"""Judge calls that a running program made."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Sequence
from functools import partial

from mha_lint.engine.dispatch import judge_any
from mha_lint.engine.run import Progress, Work, run
from mha_lint.engine.target import Judged, failed
from mha_lint.model.contract import EXPECTATIONS, unknown_expectation
from mha_lint.model.report import NotChecked, RunReport
from mha_lint.model.settings import Settings, UsageError
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.judge import relative_path
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.targets.live import Snapshot, live_subject
from mha_lint.targets.live.narrow import narrowed
from mha_lint.targets.live.widen import widened
from mha_lint.targets.make import StageError


def check_calls(
    snapshots: Sequence[Snapshot],
    settings: Settings,
    progress: Progress | None = None,
    *,
    expect: tuple[str, ...] = (),
    others: Sequence[NotChecked] = (),
) -> RunReport:
    """Judge every call of `snapshots`; `others` are calls that could not be copied.

    Raises:
        UsageError: a rule or a device that is asked for is not there, or `expect` has another word.
    """
    for word in expect:
        if word not in EXPECTATIONS:
            raise UsageError(unknown_expectation(word))
    jobs: list[tuple[TargetSpec | NotChecked, Work | None]] = [
        (spec_of(one, settings, expect), partial(judge_call, one, settings, expect))
        for one in snapshots
    ]
    jobs += [(one, None) for one in others]
    return run(jobs, settings, progress, rules=True)


def spec_of(
    snapshot: Snapshot, settings: Settings, expect: tuple[str, ...] = (), *, stated: bool = True
) -> TargetSpec:
    """Return what `snapshot` is called in reports: ``models/gpt.py::Attention``.

    `stated`: the user named it, so that it is a failure if it holds no attention.
    """
    path = relative_path(snapshot.span.path, settings.cwd)
    return TargetSpec(
        text=f"{path}::{snapshot.name}",
        path=path,
        qualname=snapshot.name,
        expect=expect,
        stated=stated,
        line=snapshot.span.line,
    )


def judge_call(
    snapshot: Snapshot,
    settings: Settings,
    expect: tuple[str, ...],
    rules: list[LoadedRule],
    *,
    stated: bool = True,
) -> Judged:
    """Make the call of `snapshot` again and judge it; see `spec_of` for `stated`."""
    spec = spec_of(snapshot, settings, expect, stated=stated)
    try:
        subject = live_subject(snapshot, text=spec.text, expect=expect)
        for change in (narrowed, widened):
            other = change(snapshot, subject)
            if other is not None:
                snapshot = other
                subject = live_subject(snapshot, text=spec.text, expect=expect)
    except StageError as error:
        reason = f"the call could not be made again: {error}"
        detail = "".join(traceback.format_exception(error.error))
        return Judged(failed(NotChecked(reason, "", detail), spec, settings), [])
    judged = judge_any(subject, spec, settings, rules)
    report = judged.report
    if snapshot.count > 1:
        sites = tuple(dataclasses.replace(s, repeated=snapshot.count) for s in report.sites)
        report = dataclasses.replace(report, sites=sites)
    if snapshot.where:
        report = dataclasses.replace(report, notes=(f"at {snapshot.where}", *report.notes))
    return Judged(report, judged.crashes)
