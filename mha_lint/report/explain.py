"""What ``mha-lint explain`` prints: a rule's own documentation."""

from __future__ import annotations

from rich.text import Text

from mha_lint.model.documentation import RuleDoc
from mha_lint.report.lines import STYLES, line, paragraph, to_string
from mha_lint.report.view import View

NOT_CHECKED = "MHA001"
SCOPES = {
    "site": "every attention site",
    "subject": "the whole module",
    "comment": "every suppression comment",
}
NOT_CHECKED_NAME = "not-checked"
_SECTIONS = (
    (
        "What",
        "The target could not be loaded, built, called or recorded. The report gives the reason and "
        "what to pass, the status of the target is failed, and the exit code is 2. It is no rule: "
        "it cannot be selected, ignored or suppressed.",
    ),
    (
        "Why",
        "What was not looked at is not clean. Where torch's error could be told in terms of heads and "
        "widths (MHA102, MHA103) or of a mask's fill (MHA305), that is reported as a finding besides.",
    ),
    (
        "What helps",
        'State what could not be guessed: --build "MHA(d_model=64, num_heads=8)" and '
        '--call "torch.randn(2, 10, 64)". -v shows the traceback. A package that is missing has to be '
        "installed beside mha-lint; what takes too long needs smaller sizes or --timeout.",
    ),
)


def render_not_checked(view: View) -> str:
    """Return what MHA001 stands for."""
    lines = [
        line((NOT_CHECKED, "bold red"), " ", (NOT_CHECKED_NAME, "bold")),
        line(("the status of a target, no rule", "dim")),
        Text(""),
        *paragraph("A target could not be judged.", view, indent=0, hang=0),
    ]
    for title, text in _SECTIONS:
        lines += [Text(""), line((title, "bold")), *_prose(text, view)]
    return to_string(lines, view)


def render(doc: RuleDoc, view: View) -> str:
    """Return the documentation of one rule."""
    scope = SCOPES[doc.scope]
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
