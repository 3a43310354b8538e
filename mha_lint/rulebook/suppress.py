"""Suppression comments in the user's source.

``# mha-lint: ignore[MHA201] reason`` on a line covers what is reported on that line, on a ``class``
line what is reported anywhere in the class; ``# mha-lint: ignore-file[MHA201] reason`` covers the
file. Several codes are separated by commas, and a prefix of codes ("MHA2") works.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from mha_lint.model.lines import lines_of
from mha_lint.model.source import Span
from mha_lint.rulebook.select import matches
from mha_lint.targets.notebooks.ipython import plain_script
from mha_lint.targets.source import SourceError, parse

_COMMENT = re.compile(r"#\s*mha-lint:\s*(ignore|ignore-file)\[([^\]]*)\]", re.IGNORECASE)
_MEANT = re.compile(r"#\s*mha-lint\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Suppression:
    """One comment: the codes that it names and the lines that it covers (both included)."""

    codes: tuple[str, ...]
    line: int
    first: int
    last: float

    def covers(self, code: str, span: Span) -> bool:
        """Tell whether a finding of `code` at `span` is meant.

        The comment may stand on the first or on the last line of the marked source, since a
        formatter moves it to the last one when an expression is broken over several lines.
        """
        places = (span.line, max(span.line, span.end_line))
        return any(matches(selector, code) for selector in self.codes) and any(
            self.first <= line <= self.last for line in places
        )


def suppressed(code: str, span: Span, path: str) -> bool:
    """Tell whether a comment in the file at the absolute `path` suppresses `code` at `span`."""
    source = "".join(lines_of(path))
    return any(s.covers(code, span) for s in suppressions(source))


@lru_cache(maxsize=256)
def suppressions(source: str) -> tuple[Suppression, ...]:
    """Return the suppression comments of `source`, in order; none if it does not parse."""
    if "mha-lint:" not in source.lower():
        return ()
    source = plain_script(source)
    try:
        tree = parse(source, "source")
        classes = {n.lineno: n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SourceError, SyntaxError, ValueError, tokenize.TokenError):
        return ()
    found: list[Suppression] = []
    for token in tokens:
        comment = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if comment is None:
            continue
        line = token.start[0]
        codes = tuple(c.strip().upper() for c in comment[2].split(",") if c.strip())
        owner = classes.get(line)
        if comment[1].lower() == "ignore-file":
            found.append(Suppression(codes, line, 1, float("inf")))
        elif owner is not None:
            found.append(Suppression(codes, line, line, owner.end_lineno or line))
        else:
            found.append(Suppression(codes, line, line, line))
    return tuple(found)


def useless_comments(source: str, codes: Collection[str]) -> list[tuple[int, str]]:
    """Return line and fault of comments that are meant to suppress and cannot: no rule is named.

    `codes`: those of all rules.
    """
    if "mha-lint" not in source.lower():
        return []
    source = plain_script(source)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return []
    found: list[tuple[int, str]] = []
    for token in tokens:
        if token.type != tokenize.COMMENT or not _MEANT.search(token.string):
            continue
        comment = _COMMENT.search(token.string)
        names = [c.strip() for c in comment[2].split(",") if c.strip()] if comment else []
        if not names:
            found.append((token.start[0], "suppresses nothing: write # mha-lint: ignore[MHA201]"))
        found += [
            (token.start[0], f"{name} is no rule's code, nothing is suppressed by it")
            for name in names
            if not any(matches(name.upper(), code) for code in codes)
        ]
    return found
