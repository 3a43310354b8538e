"""Take a rule file's docstring apart.

Its first line says what is wrong. Then come sections, each opened by its name at the start of a
line: ``What:``, ``Why:``, ``Bad:`` and ``Good:`` (complete small modules in ```` ```python ````
fences, as many as wanted), ``References:`` (one entry a line, further lines indented).
"""

from __future__ import annotations

import inspect
import re

from mha_lint.model.documentation import RuleDoc
from mha_lint.model.rule import Rule

_HEADING = re.compile(r"^(What|Why|Bad|Good|References):[ \t]*(.*)$")
_FENCE = re.compile(r"^```python\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def parse_documentation(doc: str, rule: Rule, *, name: str, family: str) -> RuleDoc:
    """Return what the docstring `doc` of `rule` says."""
    summary, _, rest = inspect.cleandoc(doc).partition("\n")
    sections = _sections(rest)
    return RuleDoc(
        code=rule.code,
        name=name,
        family=family,
        severity=rule.severity,
        since=rule.since,
        summary=summary.strip(),
        what=sections.get("What", "").strip(),
        why=sections.get("Why", "").strip(),
        bad=tuple(_FENCE.findall(sections.get("Bad", ""))),
        good=tuple(_FENCE.findall(sections.get("Good", ""))),
        references=_entries(sections.get("References", "")),
        scope=_scope(rule),
    )


def _scope(rule: Rule) -> str:
    if rule.comment is not None:
        return "comment"
    return "subject" if rule.subject is not None else "site"


def _sections(text: str) -> dict[str, str]:
    """Return the text of each section; a section that is opened again is continued."""
    sections: dict[str, list[str]] = {}
    current = ""
    fenced = False
    for line in text.split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line)
        if heading:
            current = heading[1]
        sections.setdefault(current, []).append(heading[2] if heading else line)
    return {name: "\n".join(lines) + "\n" for name, lines in sections.items()}


def _entries(text: str) -> tuple[str, ...]:
    """Return one string for each entry; an indented line goes on with the entry above it."""
    entries: list[str] = []
    for line in text.split("\n"):
        if line.startswith((" ", "\t")) and entries and not line.lstrip().startswith(("- ", "* ")):
            entries[-1] += " " + line.strip()
        elif line.strip():
            entries.append(line.strip().removeprefix("- ").removeprefix("* "))
    return tuple(entries)
