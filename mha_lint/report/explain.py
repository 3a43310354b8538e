"""What ``mha-lint explain`` prints: a rule's own documentation."""

from __future__ import annotations

from rich.text import Text

from mha_lint.model.documentation import RuleDoc
from mha_lint.report.lines import line, paragraph, to_string
from mha_lint.report.text import STYLES
from mha_lint.report.view import View


def render(doc: RuleDoc, view: View) -> str:
    """Return the documentation of one rule."""
    scope = "the whole module" if doc.subject else "every attention site"
    lines = [
        line((doc.code, STYLES[doc.severity]), " ", (doc.name, "bold")),
        line((f"{doc.severity}, checked at {scope}, since {doc.since}", "dim")),
        Text(""),
        *paragraph(doc.summary, view, indent=0, hang=0),
    ]
    for title, text in (("What", doc.what), ("Why", doc.why)):
        if text:
            lines += [Text(""), line((title, "bold")), *_prose(text, view)]
    for title, examples, style in (("Bad", doc.bad, "red"), ("Good", doc.good, "green")):
        for example in examples:
            lines += [Text(""), line((title, f"bold {style}"))]
            lines += [line("  " + row) for row in example.rstrip().split("\n")]
    if doc.references:
        lines += [Text(""), line(("References", "bold"))]
        lines += [
            t
            for entry in doc.references
            for t in paragraph(entry, view, label="-", indent=2, hang=2)
        ]
    return to_string(lines, view)


def _prose(text: str, view: View) -> list[Text]:
    """Return `text` re-wrapped, paragraph by paragraph; lists and indented formulas stay."""
    out: list[Text] = []
    for number, block in enumerate(text.split("\n\n")):
        if number:
            out.append(Text(""))
        rows = block.split("\n")
        if any(row.startswith(("  ", "- ", "* ")) for row in rows):
            out += [line("  " + row) for row in rows]
        else:
            out += paragraph(" ".join(row.strip() for row in rows), view, indent=2, hang=0)
    return out
