"""Many targets, one after the other; what one does to the process never reaches the next."""

from __future__ import annotations

import dataclasses
import linecache
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeAlias

import torch

from mha_lint.engine.cells import in_cells, left_out, notes_in_cells
from mha_lint.engine.dispatch import judge_target
from mha_lint.engine.restore import restored
from mha_lint.engine.suppressions import with_unused_suppressions
from mha_lint.engine.target import Judged, not_checked
from mha_lint.model.finding import Crash
from mha_lint.model.report import NotChecked, RunReport, Status, TargetReport
from mha_lint.model.settings import Settings, UsageError
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import LoadedRule, builtin_pack, load_pack
from mha_lint.rulebook.select import select_rules
from mha_lint.rulebook.suppress import useless_comments
from mha_lint.targets.resolve import expand
from mha_lint.targets.timelimit import TimeLimitError, time_limit

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called as (done, total, name of the target that comes next)."""


def check(
    specs: Sequence[TargetSpec | NotChecked], settings: Settings, progress: Progress | None = None
) -> RunReport:
    """Judge every target of `specs` and return what was found; user code never raises through.

    Raises:
        UsageError: a rule or a device that is asked for is not there.
    """
    return run(_targets(specs, settings), settings, progress, rules=True)


def inspect(specs: Sequence[TargetSpec | NotChecked], settings: Settings) -> RunReport:
    """Return the sites of every target, with their sizes and costs, without judging them."""
    return run(_targets(specs, settings), settings, None, rules=False)


Work: TypeAlias = Callable[[list[LoadedRule]], Judged]
"""Judges one target by the chosen rules."""


def _targets(
    specs: Sequence[TargetSpec | NotChecked], settings: Settings
) -> list[tuple[TargetSpec | NotChecked, Work | None]]:
    """Return every target that `specs` names with what judges it."""
    expanded = [
        out
        for one in specs
        for out in ([one] if isinstance(one, NotChecked) else expand([one], cwd=settings.cwd))
    ]
    return [
        (one, None if isinstance(one, NotChecked) else partial(judge_target, one, settings))
        for one in expanded
    ]


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
        raise UsageError("--device cuda: this machine has no CUDA device")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # one thread: the same sums in the same order, so the same bytes
    try:
        pack = load_pack(builtin_pack()) if rules else []
        chosen = select_rules(pack, settings) if rules else []
        targets: list[TargetReport] = []
        crashes: list[Crash] = []
        for done, (one, work) in enumerate(jobs):
            if progress is not None:
                progress(done, len(jobs), one.text if isinstance(one, TargetSpec) else one.target)
            report, broken = _one(one, work, settings, chosen)
            targets.append(report)
            crashes += broken
        if progress is not None:
            progress(len(jobs), len(jobs), "")
    finally:
        torch.set_num_threads(threads)
    targets = without_repeats(targets)
    targets = with_unused_suppressions(targets, chosen, [rule.code for rule in pack], settings)
    notes: list[str] = []
    if not jobs or all(t.status is Status.NO_ATTENTION for t in targets):
        notes.append("no attention was found")
    notes += _comments(targets, [rule.code for rule in pack], settings)
    notes = [*notes_in_cells(notes, targets, settings), *left_out(targets, settings)]
    targets = in_cells(targets, settings)
    return RunReport(
        version=_version(),
        torch=str(torch.__version__).partition("+")[0],
        targets=tuple(targets),
        crashes=tuple(crashes),
        notes=tuple(notes),
        seconds=time.perf_counter() - start,
    )


def _comments(targets: list[TargetReport], codes: list[str], settings: Settings) -> list[str]:
    """Return a note on each suppression comment that names no rule."""
    if not codes:
        return []
    paths = dict.fromkeys(t.path for t in targets if t.path.endswith((".py", ".ipynb")))
    return [
        f"{path}:{line}: {fault}"
        for path in paths
        for line, fault in useless_comments(
            "".join(linecache.getlines(str(Path(settings.cwd, path)))), codes
        )
    ]


def _one(
    one: TargetSpec | NotChecked, work: Work | None, settings: Settings, rules: list[LoadedRule]
) -> tuple[TargetReport, list[Crash]]:
    start = time.perf_counter()
    if isinstance(one, NotChecked) or work is None:
        assert isinstance(one, NotChecked)
        return not_checked(one, None), []
    try:
        with restored(), time_limit(settings.timeout):
            judged = work(rules)
        report, crashes = judged.report, judged.crashes
    except TimeLimitError:
        reason = f"it was not judged within {settings.timeout:g} s"
        hint = "give it more time with --timeout, or a smaller --build and --call"
        report, crashes = not_checked(NotChecked(reason, hint), one), []
    except Exception as error:  # a bug of ours: it must neither hide the other targets nor pass
        text = "".join(traceback.format_exception(error))
        reason = f"mha-lint itself failed on this target: {type(error).__name__}: {error}"
        report = not_checked(NotChecked(reason, "please report this", text), one)
        crashes = [Crash("engine", one.text, f"{type(error).__name__}: {error}", text)]
    return dataclasses.replace(report, seconds=time.perf_counter() - start), crashes


def without_repeats(targets: list[TargetReport]) -> list[TargetReport]:
    """Report a finding once: with the class it lies in, not again with each class that holds it."""
    ranked: dict[tuple[object, ...], int] = {}
    for index, target in enumerate(targets):
        for one in target.findings:
            key = (one.code, one.span)
            inside = target.line is not None and target.path == one.span.path
            distance = one.span.line - (target.line or 0) if inside else 10**9
            distance = distance if distance >= 0 else 10**8
            best = ranked.get(key)
            if best is None or distance < _distance(targets[best], one.span.line, one.span.path):
                ranked[key] = index
    kept = [
        tuple(f for f in t.findings if ranked[(f.code, f.span)] == i) for i, t in enumerate(targets)
    ]
    return [
        dataclasses.replace(t, findings=own, elsewhere=tuple(f for f in t.findings if f not in own))
        for t, own in zip(targets, kept, strict=True)
    ]


def _distance(target: TargetReport, line: int, path: str) -> int:
    if target.line is None or target.path != path:
        return 10**9
    away = line - target.line
    return away if away >= 0 else 10**8


def _version() -> str:
    try:
        return version("mha-lint")
    except PackageNotFoundError:
        return "0+unknown"
