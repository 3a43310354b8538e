"""The ``text`` format: for a person, with code frames; plain when not on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.text import Text

from mha_lint.model.finding import Finding
from mha_lint.model.report import RunReport, Status, TargetReport, in_words
from mha_lint.report.frame import code_frame
from mha_lint.report.header import target_header
from mha_lint.report.lines import STYLES, line, paragraph, to_string
from mha_lint.report.summary import explained, identity, remarks, summary, visible, worst
from mha_lint.report.view import View


def render(report: RunReport, view: View) -> str:
    """Return `report` as text for `view`."""
    blocks = [
        *_targets(report, view),
        _not_checked(report, view),
        _undecided(report, view),
        _crashes(report, view),
        _notes(report, view),
        _summary(report, view),
    ]
    lines: list[Text] = []
    for block in blocks:
        if block and lines:
            lines.append(Text(""))
        lines += block
    return to_string(lines, view)


def _targets(report: RunReport, view: View) -> Iterator[list[Text]]:
    """Yield a header and then one block for each finding, without saying anything twice."""
    said: dict[object, str] = {}
    for target in report.targets:
        findings = visible(target)
        if target.sites and (findings or not view.quiet):
            yield target_header(target, view)
        repeats: dict[str, int] = {}
        for finding in findings:
            key = identity(finding)
            if key in said:
                repeats[said[key]] = repeats.get(said[key], 0) + 1
                continue
            said[key] = target.target
            yield _finding(finding, view)
        for name, count in repeats.items():
            what = "the finding" if count == 1 else f"{count} findings"
            yield [line((f"  and {what} shown under {name}", "dim"))]


def _finding(finding: Finding, view: View) -> list[Text]:
    style = STYLES[finding.severity]
    title = line((f"{finding.severity}[{finding.code}]", style), " ", (finding.rule, "bold"))
    place = str(finding.span)
    gap = max(2, view.width - title.cell_len - len(place))
    out = [Text.assemble(title, " " * gap, (place, "cyan"))]
    out += paragraph(finding.message, view, hang=0)
    out += code_frame(finding, view, style)
    for label, texts in (
        ("when", [finding.branch or ""]),
        ("why", [finding.why]),
        ("seen", [text for text in finding.evidence if _adds(text, finding.why)]),
        ("proof", [finding.confirmed_by or ""]),
        ("fix", [finding.help]),
        ("more", [f"mha-lint explain {finding.code}"]),
    ):
        out += _labelled(label, texts, view, style="green" if label == "fix" else "")
    return out


def _adds(evidence: str, why: str) -> bool:
    """Tell whether `evidence` holds more than the numbers that `why` gives already."""
    numbers = set(re.findall(r"\d+(?:\.\d+)?", evidence))
    return not numbers or not numbers <= set(re.findall(r"\d+(?:\.\d+)?", why))


def _labelled(label: str, texts: Iterable[str], view: View, *, style: str = "") -> list[Text]:
    out: list[Text] = []
    for text in texts:
        if text:
            out += paragraph(text, view, label="" if out else label, style=style)
    return out


def _not_checked(report: RunReport, view: View) -> list[Text]:
    failed = [t for t in report.targets if t.status is Status.FAILED]
    out = [line(("not checked", "bold red"))] if failed else []
    for target in failed:
        out.append(line("  ", (_place(target), "bold")))
        told = explained(target)
        if told:
            codes = ", ".join(f"{f.code} at {f.span}" for f in told)
            why = f"it does not run, see {codes} above; nothing else could be judged"
            out += paragraph(why, view, label="why", indent=4)
        else:
            out += paragraph(target.reason or "no reason given", view, label="why", indent=4)
            out += _labelled_at(4, "fix", target.hint or "", view)
        if view.verbose and target.detail:
            out += paragraph(target.detail, view, indent=4, hang=0, style="dim")
    return out


def _labelled_at(indent: int, label: str, text: str, view: View) -> list[Text]:
    return paragraph(text, view, label=label, indent=indent) if text else []


def _place(target: TargetReport) -> str:
    return target.target + (f" ({in_words(target.line, target.cell)})" if target.line else "")


def _undecided(report: RunReport, view: View) -> list[Text]:
    """Return the open questions, those with one reason at one site together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for target in report.targets:
        for item in target.undecided:
            key = (target.target, item.site or "whole module", item.why)
            groups.setdefault(key, []).append(item.code)
    if not groups or view.quiet:
        return []
    out = [
        line(
            ("undecided", "bold"), (" (could not be judged, which is not the same as right)", "dim")
        )
    ]
    for (target_name, site, why), codes in groups.items():
        out.append(line("  ", (", ".join(codes), "bold"), f"   {target_name}, {site}"))
        out += paragraph(why, view, indent=4, hang=0)
    return out


def _crashes(report: RunReport, view: View) -> list[Text]:
    if not report.crashes:
        return []
    out = [
        line(("internal errors", "bold red"), (" (bugs of mha-lint: please report them)", "dim"))
    ]
    for crash in report.crashes:
        out.append(line("  ", (crash.where, "bold"), f"   {crash.target}"))
        out += paragraph(crash.error, view, indent=4, hang=0)
        if view.verbose and crash.traceback:
            out += paragraph(crash.traceback, view, indent=4, hang=0, style="dim")
    return out


def _notes(report: RunReport, view: View) -> list[Text]:
    if view.quiet:
        return []
    out = [
        text for note in report.notes for text in paragraph(f"note: {note}", view, indent=0, hang=0)
    ]
    if view.verbose:
        empty = [t for t in report.targets if t.status is Status.NO_ATTENTION]
        for target in empty:
            why = f": {target.reason}" if target.reason else ""
            out += paragraph(f"no attention in {_place(target)}{why}", view, indent=0, hang=0)
    return out


def _summary(report: RunReport, view: View) -> list[Text]:
    level = worst(report.findings())
    bad = report.crashes or any(t.status is Status.FAILED for t in report.targets)
    if view.quiet and level is None and not bad:
        return []
    style = STYLES[level] if level else "bold red" if bad else "bold green"
    more = "; ".join(remarks(report))
    out = [line((summary(report), style))]
    return out + (paragraph(more, view, indent=0, hang=0) if more else [])
