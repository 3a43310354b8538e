"""The code of a Python text: what stands in its strings and comments taken out, without parsing."""

from __future__ import annotations

import re

from mha_lint.targets.notebooks.ipython import may_be_exported

_SHORT = r"{0}(?!{0}{0})(?:[^\\{0}\n]|\\.)*+{0}"
_LONG = r"{0}{0}{0}(?:[^\\{0}]|\\.|{0}(?!{0}{0}))*+{0}{0}{0}"
_SKIPPED = re.compile(
    r"#[^\n]*+|" + "|".join(form.format(q) for form in (_LONG, _SHORT) for q in "\"'") + "|[\"']",
    re.DOTALL,
)
"""A comment, a string, or a quote that begins none."""
_QUOTED = re.compile(r"'[^'\"{}\\\n]*+'|\"[^'\"{}\\\n]*+\"")


def code_of(text: str) -> str | None:
    """Return `text` with ``0`` for each string and without comments; None if that cannot be told.

    What an f-string holds stands at the end, for it is code too. It cannot be told where a string
    never ends, where an f-string holds quotes in ways that Python's versions read differently, and
    in what may be a script exported from a notebook, which need be no Python as it stands.
    """
    if may_be_exported(text):
        return None
    filled: list[str] = []
    clear = True

    def replaced(match: re.Match[str]) -> str:
        nonlocal clear
        found = match[0]
        if found[0] == "#":
            return ""
        if len(found) == 1:
            clear = False
        elif "{" in found and _is_filled(text, match.start()):
            inside = _QUOTED.sub(" 0 ", found.strip(found[0]))
            if found[0] in inside or "'" in inside or '"' in inside:
                clear = False
            if inside.count("{") != inside.count("}"):
                clear = False
            filled.append(inside)
        return " 0 "

    code = _SKIPPED.sub(replaced, text)
    return "\n".join([code, *filled]) if clear else None


def _is_filled(text: str, start: int) -> bool:
    """Tell whether the string at `start` has an ``f`` (or ``t``) before its quotes."""
    before = text[max(0, start - 2) : start].lower()
    return before.endswith(("f", "t", "fr", "tr"))
