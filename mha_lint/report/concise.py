"""The ``concise`` format: one line for each finding, as compilers and editors know it."""

from __future__ import annotations

from rich.text import Text

from mha_lint.model.report import RunReport, Status
from mha_lint.report.lines import STYLES, clean, line, to_string
from mha_lint.report.summary import distinct, explained, remarks, summary
from mha_lint.report.view import View


def render(report: RunReport, view: View) -> str:
    """Return ``path:line:col: CODE message`` lines, then those of what was not checked."""
    lines: list[Text] = []
    for finding in distinct(report.findings()):
        code = (finding.code, STYLES[finding.severity])
        lines.append(line(f"{finding.span}: ", code, f" {_one_line(finding.message)}"))
    for target in report.targets:
        if target.status is Status.FAILED:
            cell = f"cell {target.cell}:" if target.cell else ""
            place = f"{target.path}:{cell}{target.line}:1: " if target.line else f"{target.path}: "
            hint = f" ({target.hint})" if target.hint else ""
            why = f"{target.reason}{hint}"
            if told := explained(target):
                why = f"it does not run, see {', '.join(f'{f.code} at {f.span}' for f in told)}"
            name = f"{target.target} " if target.target != target.path else ""
            text = _one_line(f"{name}not checked: {why}")
            lines.append(line(place, ("MHA001", "bold red"), f" {text}"))
    for crash in report.crashes:
        text = _one_line(f"{crash.where} in {crash.target}: {crash.error}")
        lines.append(line(("internal error", "bold red"), f": {text}"))
    if not view.quiet:
        lines.append(line("; ".join([summary(report), *remarks(report)])))
    return to_string(lines, view)


def _one_line(text: str) -> str:
    return " ".join(clean(text).split())
