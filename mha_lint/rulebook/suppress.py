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
    tree, comments = _read(source)
    if tree is None:
        return ()
    classes = {n.lineno: n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}
    found: list[Suppression] = []
    for line, text in comments:
        comment = _COMMENT.search(text)
        if comment is None:
            continue
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
    found: list[tuple[int, str]] = []
    for line, text in _read(source)[1]:
        if not _MEANT.search(text):
            continue
        comment = _COMMENT.search(text)
        names = [c.strip() for c in comment[2].split(",") if c.strip()] if comment else []
        if not names:
            found.append((line, "suppresses nothing: write # mha-lint: ignore[MHA201]"))
        found += [
            (line, f"{name} is no rule's code, nothing is suppressed by it")
            for name in names
            if not any(matches(name.upper(), code) for code in codes)
        ]
    return found


def _read(source: str) -> tuple[ast.Module | None, list[tuple[int, str]]]:
    """Return the tree of `source` and its comments with their lines; nothing if it does not parse.

    Before Python 3.12 the time of `tokenize` grows with the square of what it cannot read; of a source
    that parses, with its lines ended as Python does, it can read all.
    """
    source = plain_script(source)
    try:
        tree = parse(source, "source")
        lines = io.StringIO(source, newline=None)
        tokens = list(tokenize.generate_tokens(lines.readline))
    except (SourceError, SyntaxError, ValueError, tokenize.TokenError):
        return None, []
    return tree, [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]
