"""The list of rules as text, Markdown (the table in README) or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.text import Text

from mha_lint.model.documentation import RuleDoc
from mha_lint.report.lines import STYLES, line, paragraph, to_string
from mha_lint.report.view import View


def render(docs: Sequence[RuleDoc], view: View) -> str:
    """Return one entry for each rule: code, severity, name, what is wrong."""
    width = max((len(doc.name) for doc in docs), default=0)
    lines: list[Text] = []
    for doc in docs:
        head = line((doc.code, STYLES[doc.severity]), f"  {doc.severity:<7}  {doc.name:<{width}}  ")
        first, *rest = paragraph(doc.summary, view, indent=head.cell_len, hang=0)
        lines += [Text.assemble(head, first.plain.lstrip()), *rest]
    return to_string(lines, view)


def render_markdown(docs: Sequence[RuleDoc], view: View) -> str:
    """Return a Markdown table."""
    rows = [
        "| code | name | severity | what is wrong |",
        "|---|---|---|---|",
        *(f"| {d.code} | {d.name} | {d.severity} | {_cell(d.summary)} |" for d in docs),
    ]
    return "\n".join(rows) + "\n"


def render_json(docs: Sequence[RuleDoc], view: View) -> str:
    """Return a JSON list with one object for each rule."""
    rows = [
        {
            "code": doc.code,
            "name": doc.name,
            "family": doc.family,
            "severity": doc.severity.value,
            "since": doc.since,
            "scope": doc.scope,
            "summary": doc.summary,
            "what": doc.what,
            "why": doc.why,
            "references": list(doc.references),
        }
        for doc in docs
    ]
    return json.dumps(rows, indent=1) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
