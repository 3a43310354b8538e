"""The sentences that close a report: what was found, what was not judged, and how long it took."""

from __future__ import annotations

from collections.abc import Iterable

from mha_lint.model.finding import Finding, Severity
from mha_lint.model.report import RunReport, Status, TargetReport
from mha_lint.model.source import Span


def summary(report: RunReport) -> str:
    """Return "1 error in 1 module (1 attention site), 1.9 s"."""
    judged = [
        t for t in report.targets if t.status in (Status.CHECKED, Status.UNDECIDED) or explained(t)
    ]
    sites = sum(site.repeated for target in judged for site in target.sites)
    levels = [f.severity for f in distinct(report.findings())]
    found = ", ".join(
        counted(levels.count(level), level.value) for level in Severity if level in levels
    )
    where = f"{counted(len(judged), 'module')} ({counted(sites, 'attention site')})"
    return f"{found or 'no findings'} in {where}, {report.seconds:.1f} s"


def remarks(report: RunReport) -> list[str]:
    """Return what the summary must not hide: failures, crashes, open questions, suppressions."""
    failed = sum(t.status is Status.FAILED for t in report.targets)
    empty = sum(t.status is Status.NO_ATTENTION for t in report.targets)
    undecided = sum(len(t.undecided) for t in report.targets)
    hidden = len(distinct(f for t in report.targets for f in t.findings if f.suppressed))
    out = []
    if failed:
        out.append(f"{counted(failed, 'target')} not checked")
    if report.crashes:
        out.append(f"{counted(len(report.crashes), 'internal error')}")
    if undecided:
        out.append(f"{counted(undecided, 'rule verdict')} undecided")
    if hidden:
        out.append(f"{counted(hidden, 'finding')} suppressed")
    if empty:
        out.append(f"{counted(empty, 'candidate')} without attention")
    return out


def explained(target: TargetReport) -> list[Finding]:
    """Return the findings that say why a target does not run; none if it does, or nothing says why."""
    return visible(target) if target.status is Status.FAILED else []


def counted(number: int, noun: str) -> str:
    """Return "1 error" or "2 errors"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Return the highest severity among `findings`, None if there are none."""
    return max((f.severity for f in findings), key=lambda s: s.rank, default=None)


def distinct(findings: Iterable[Finding]) -> list[Finding]:
    """Return `findings` without what was said before of the same place.

    A class that another target builds is judged there again, and says the same of the same lines.
    """
    return list({identity(f): f for f in reversed(list(findings))}.values())[::-1]


def identity(finding: Finding) -> tuple[str, Span, str]:
    """Return what two findings of one fault have in common, though two targets met it."""
    return finding.code, finding.span, finding.message


def visible(target: TargetReport) -> list[Finding]:
    """Return the findings of `target` that are not suppressed."""
    return [f for f in target.findings if not f.suppressed]
