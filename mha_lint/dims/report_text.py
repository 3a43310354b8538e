"""The diagnosis as text: a table of the attention found, contradictions, notes."""

from __future__ import annotations

from rich.text import Text

from mha_lint.dims.data import Candidate, Contradiction, DimsReport, Group
from mha_lint.report.lines import line, paragraph, to_string
from mha_lint.report.view import View

_COLUMNS = ("attention", "layers", "d_model", "h", "h_kv", "d_k", "d_v", "projections", "verdict")
_LEFT = frozenset({0, 7, 8})
_MOST = 12


def render(report: DimsReport, view: View) -> str:
    """Return `report` as text for `view`."""
    blocks = [
        _sources(report, view),
        _table(report),
        *(_candidates(g, view) for g in report.groups if g.candidates),
        *(_contradiction(c, view) for c in report.contradictions),
        _notes(report, view),
        [line((_summary(report), "bold"))],
    ]
    lines: list[Text] = []
    for block in blocks:
        if block and lines:
            lines.append(Text(""))
        lines += block
    return to_string(lines, view)


def _sources(report: DimsReport, view: View) -> list[Text]:
    if view.quiet:
        return []
    shown = report.sources if view.verbose else report.sources[:6]
    out = [line((s.path, "bold"), f"  {s.kind}, {s.detail}") for s in shown]
    if len(report.sources) > len(shown):
        out.append(line((f"  and {len(report.sources) - len(shown)} more", "dim")))
    return out


def _table(report: DimsReport) -> list[Text]:
    rows = [_row(g) for g in report.groups]
    if not rows:
        return []
    widths = [max(len(_COLUMNS[i]), *(len(r[i]) for r in rows)) for i in range(len(_COLUMNS))]

    def aligned(row: tuple[str, ...]) -> str:
        cells = [
            c.ljust(w) if i in _LEFT else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        return "  " + "  ".join(cells)

    return [line((aligned(_COLUMNS), "dim")), *(line(aligned(row)) for row in rows)]


def _row(group: Group) -> tuple[str, ...]:
    width = str(group.sizes.get("d_model", "-"))
    if group.kv_width is not None:
        width += f" (kv {group.kv_width})"
    sizes = tuple(str(group.sizes.get(n, "-")) for n in ("h", "h_kv", "d_k", "d_v"))
    verdict = {"solved": "consistent", "open": "head count open"}.get(group.status, group.status)
    return (group.where, str(group.count), width, *sizes, group.layout or "-", verdict)


def _candidates(group: Group, view: View) -> list[Text]:
    ways = ", ".join(_candidate(c) for c in group.candidates[:_MOST])
    more = len(group.candidates) - _MOST
    end = f" and {more} more" if more > 0 else ""
    return paragraph(f"{group.where} could be {ways}{end}", view, indent=2, hang=2)


def _candidate(candidate: Candidate) -> str:
    sizes = candidate.sizes
    shared = f" ({sizes['h_kv']} kv)" if sizes.get("h_kv") not in (None, sizes.get("h")) else ""
    usual = " [usual]" if candidate.usual else ""
    return f"{sizes.get('h', '?')}{shared} x {sizes.get('d_k', '?')}{usual}"


def _contradiction(contradiction: Contradiction, view: View) -> list[Text]:
    head = line(("contradiction", "bold red"), f"  {contradiction.where}")
    body = paragraph(contradiction.message, view, label="", indent=2, hang=0)
    return [head, *body, *paragraph("; ".join(contradiction.sources), view, label="from", indent=2)]


def _notes(report: DimsReport, view: View) -> list[Text]:
    if view.quiet:
        return []
    return [
        row for note in report.notes for row in paragraph(f"note: {note}", view, indent=0, hang=2)
    ]


def _summary(report: DimsReport) -> str:
    count = len(report.contradictions)
    read = sum(g.count for g in report.groups if g.status != "not read")
    if not read and not count:
        return "no attention projections found"
    found = f"{count} contradiction{'s' if count != 1 else ''}" if count else "no contradictions"
    left = sum(g.count for g in report.groups if g.status == "open")
    opened = f", {left} with an open head count" if left else ""
    return f"{found} in {read} attention module{'s' if read != 1 else ''}{opened}"
