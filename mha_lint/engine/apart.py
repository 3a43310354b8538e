"""Sites that were found in a module and in the one around it, told once."""

from __future__ import annotations

import dataclasses

from mha_lint.model.report import TargetReport


def told_once(reports: list[TargetReport]) -> list[TargetReport]:
    """Return `reports` with each site in the first of those that hold it, with what is said of it."""
    seen: set[object] = set()
    kept: list[TargetReport] = []
    for report in reports:
        keys = {site.id: (site.module, site.line, site.kind) for site in report.sites}
        again = {name for name, key in keys.items() if key in seen}
        seen |= set(keys.values())
        if len(again) < len(keys):
            kept.append(_without(report, again) if again else report)
    return kept or reports[:1]


def _without(report: TargetReport, names: set[str]) -> TargetReport:
    return dataclasses.replace(
        report,
        sites=tuple(s for s in report.sites if s.id not in names),
        findings=tuple(f for f in report.findings if f.site not in names),
        undecided=tuple(u for u in report.undecided if u.site not in names),
        crosscheck=tuple(c for c in report.crosscheck if c.site not in names),
    )
