"""Suppression comments that suppress nothing (MHA002), told when all targets of a run are judged.

What a comment would have hidden may just not have been looked for. So a comment is judged only in a
file of which every class and function that can hold attention was judged, and only for rules that
ran there and came to a verdict.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mha_lint.model.finding import Finding
from mha_lint.model.lines import line_of, lines_of
from mha_lint.model.report import Status, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.source import Span
from mha_lint.model.suppression import SuppressionUse
from mha_lint.rulebook.judge import finding, kept
from mha_lint.rulebook.pack import LoadedRule
from mha_lint.rulebook.select import ignored_in, matches
from mha_lint.rulebook.suppress import Suppression, suppressions
from mha_lint.targets.notebooks.targets import replaced
from mha_lint.targets.notebooks.versions import versions
from mha_lint.targets.scan import scan_source
from mha_lint.targets.source import SourceError, read_source

CROSSCHECKED = frozenset(["MHA901", "MHA902"])
"""Rules that have nothing to say where the cross-check is switched off."""
_COMMENT = re.compile(r"#\s*mha-lint:[^#]*", re.IGNORECASE)


def with_unused_suppressions(
    targets: list[TargetReport], rules: Sequence[LoadedRule], codes: list[str], settings: Settings
) -> list[TargetReport]:
    """Return `targets` with a finding for each comment that hides nothing.

    `rules`: those that ran; `codes`: those of all rules.
    """
    own = next((r for r in rules if r.rule.comment is not None), None)
    if own is None or own.rule.comment is None:
        return targets
    found: dict[int, list[Finding]] = {}
    for path in dict.fromkeys(t.path for t in targets if t.path.endswith((".py", ".ipynb"))):
        for use in _uses(path, targets, rules, codes, settings):
            for violation in own.rule.comment(use):
                index = _holder(targets, use.span)
                one = finding(own, violation, use.span, None, settings)
                found.setdefault(index, []).append(one)
    return [
        dataclasses.replace(t, findings=kept((*t.findings, *found[i]), settings))
        if i in found
        else t
        for i, t in enumerate(targets)
    ]


def _uses(
    path: str,
    targets: list[TargetReport],
    rules: Sequence[LoadedRule],
    codes: list[str],
    settings: Settings,
) -> Iterator[SuppressionUse]:
    """Yield what became of each comment of the file, as far as that can be told."""
    absolute = str(Path(settings.cwd, path))
    comments = suppressions("".join(lines_of(absolute)))
    here = [t for t in targets if t.path == path]
    if not comments or not _all_judged(absolute, here):
        return
    ran = {r.code for r in rules}
    open_ = {u.code for t in here for u in t.undecided}
    findings = [
        f
        for t in targets
        for f in (*t.findings, *t.elsewhere)
        if str(Path(settings.cwd, f.span.path)) == absolute
    ]
    for comment in comments:
        told = [
            code
            for code in comment.codes
            if _can_tell(code, codes, ran, open_, absolute, settings)
            and not any(
                dataclasses.replace(comment, codes=(code,)).covers(f.code, f.span) for f in findings
            )
        ]
        if told:
            yield SuppressionUse(
                _span(path, absolute, comment), comment.codes, tuple(told), _covered(comment)
            )


def _all_judged(absolute: str, here: list[TargetReport]) -> bool:
    """Return whether every class and function of the file that can hold attention was judged."""
    if any(t.status is Status.FAILED for t in here):
        return False
    judged = {t.class_name for t in here}
    try:
        source = read_source(absolute)
    except SourceError:
        return False
    if (book := source.notebook) is not None:
        places = {(t.class_name, t.line) for t in here}
        older = {(one.qualname, one.line) for _, one in replaced(source, book)}
        for name in judged - {None}:
            older |= {(n.name, n.lineno) for n in versions(source.tree, book, str(name)).values()}
        if any(cell.defines for cell in book.broken) or not places.issuperset(older):
            return False
    return all(c.qualname in judged for c in scan_source(source))


def _can_tell(
    selector: str,
    codes: list[str],
    ran: set[str],
    undecided: set[str],
    absolute: str,
    settings: Settings,
) -> bool:
    """Return whether all rules that `selector` means ran on the file and came to a verdict."""
    meant = {code for code in codes if matches(selector, code)}
    if not settings.crosscheck and meant & CROSSCHECKED:
        return False
    return (
        bool(meant)
        and meant <= ran - undecided
        and "MHA002" not in meant
        and not any(ignored_in(absolute, code, settings.per_file_ignores) for code in meant)
    )


def _covered(comment: Suppression) -> str:
    if comment.last == float("inf"):
        return "the file"
    return "this line" if comment.first == comment.last else "the class"


def _span(path: str, absolute: str, comment: Suppression) -> Span:
    text = line_of(absolute, comment.line).rstrip()
    found = _COMMENT.search(text)
    start, end = found.span() if found else (0, len(text))
    return Span(path, comment.line, start + 1, comment.line, len(text[:end].rstrip()) + 1)


def _holder(targets: list[TargetReport], span: Span) -> int:
    """Return the target in whose class the comment stands, else the first of its file."""
    own = [i for i, t in enumerate(targets) if t.path == span.path]
    above = [i for i in own if (targets[i].line or 0) <= span.line]
    return max(above, key=lambda i: targets[i].line or 0) if above else own[0]
