"""Styled lines of text: wrapped by us, coloured by rich, and the same bytes in every plain place.

rich is handed finished lines and only turns styles into escape codes, so that the layout of a
report depends on the width alone and not on what rich makes of a terminal.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from mha_lint.model.finding import Severity
from mha_lint.report.view import View

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ASCII = str.maketrans(
    {"│": "|", "…": "...", "✗": "x", "→": "->", "─": "-", "±": "+-", "√": "sqrt "}
)


def clean(text: str) -> str:
    """Return `text` without control characters: messages may hold what user code printed."""
    return _CONTROL.sub("�", text.replace("\r\n", "\n"))


def line(*parts: str | tuple[str, str]) -> Text:
    """Return one line of plain parts and ``(text, style)`` parts, whatever names they hold."""

    def one(text: str) -> str:
        return clean(text).replace("\n", "�")

    cleaned = [one(p) if isinstance(p, str) else (one(p[0]), p[1]) for p in parts]
    return Text.assemble(*cleaned)


def paragraph(
    text: str, view: View, *, label: str = "", style: str = "", indent: int = 3, hang: int = 7
) -> list[Text]:
    """Return `text` wrapped to the view, behind `label` and with `hang` columns for the labels.

    Line breaks of `text` are kept; words are never cut.
    """
    head = " " * indent
    rest = " " * (indent + hang)
    out: list[Text] = []
    for row in clean(text).rstrip().split("\n"):
        wrapped = textwrap.wrap(
            row,
            max(view.width - len(rest), 30),
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
            drop_whitespace=True,
        )
        for piece in wrapped or [""]:
            if out:
                out.append(Text.assemble(rest, (piece, style)))
            else:
                out.append(Text.assemble(head, (label.ljust(hang), "bold"), (piece, style)))
    return out


def to_string(lines: Iterable[Text], view: View) -> str:
    """Return `lines` as one string that ends with a line break, or the empty string."""
    target = io.StringIO()
    console = Console(
        file=target,
        width=view.width,
        color_system="standard" if view.color else None,
        force_terminal=view.color,
        no_color=not view.color,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for text in lines:
        text.rstrip()
        console.print(text, soft_wrap=True)
    rendered = target.getvalue()
    if view.unicode:
        return rendered
    return rendered.translate(_ASCII).encode("ascii", "replace").decode("ascii")
