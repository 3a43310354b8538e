"""From what was asked for to its targets, and from their reports to that of the run.

Neither needs torch, and nothing here imports it: the targets may be judged in other processes, or
have been judged before.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mha_lint.engine.cells import in_cells, left_out, notes_in_cells
from mha_lint.engine.suppressions import with_unused_suppressions
from mha_lint.model.finding import Crash
from mha_lint.model.lines import lines_of
from mha_lint.model.report import NotChecked, RunReport, Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.target import TargetSpec
from mha_lint.rulebook.pack import LoadedRule, builtin_pack, load_pack
from mha_lint.rulebook.select import select_rules
from mha_lint.rulebook.suppress import useless_comments
from mha_lint.targets.resolve import expand


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a run: those that ``run`` and the ``codes`` of all that there are."""

    run: tuple[LoadedRule, ...] = ()
    codes: tuple[str, ...] = ()


def rules_of(settings: Settings) -> Rules:
    """Return the rules that `settings` choose.

    Raises:
        UsageError: a rule that is asked for is not there.
    """
    pack = load_pack(builtin_pack())
    return Rules(tuple(select_rules(pack, settings)), tuple(rule.code for rule in pack))


def expanded(
    specs: Sequence[TargetSpec | NotChecked], settings: Settings
) -> list[TargetSpec | NotChecked]:
    """Return every single target that `specs` name, in the order of the report."""
    return [
        out
        for one in specs
        for out in ([one] if isinstance(one, NotChecked) else expand([one], cwd=settings.cwd))
    ]


def joined(
    targets: Sequence[TargetReport],
    crashes: Sequence[Crash],
    rules: Rules,
    settings: Settings,
    *,
    started: float,
    notes: Sequence[str] = (),
) -> RunReport:
    """Put the reports on all targets together; `started`: ``time.perf_counter()`` of the run."""
    out = without_repeats(list(targets))
    codes = list(rules.codes)
    out = with_unused_suppressions(out, rules.run, codes, settings)
    said: list[str] = [*notes]
    if not out or all(t.status is Status.NO_ATTENTION for t in out):
        said.append("no attention was found")
    said += _comments(out, codes, settings)
    said = [*notes_in_cells(said, out, settings), *left_out(out, settings)]
    return RunReport(
        version=version_of("mha-lint") or "0+unknown",
        torch=version_of("torch"),
        targets=tuple(in_cells(out, settings)),
        crashes=tuple(crashes),
        notes=tuple(said),
        seconds=time.perf_counter() - started,
    )


def version_of(distribution: str) -> str | None:
    """Return the installed version of `distribution`, without that of its build ("+cpu")."""
    try:
        return version(distribution).partition("+")[0]
    except PackageNotFoundError:
        return None


def _comments(targets: list[TargetReport], codes: list[str], settings: Settings) -> list[str]:
    """Return a note on each suppression comment that names no rule."""
    if not codes:
        return []
    paths = dict.fromkeys(t.path for t in targets if t.path.endswith((".py", ".ipynb")))
    return [
        f"{path}:{line}: {fault}"
        for path in paths
        for line, fault in useless_comments("".join(lines_of(str(Path(settings.cwd, path)))), codes)
    ]


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
