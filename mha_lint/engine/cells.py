"""Say cell and line where a report on a notebook says a line of all its cells joined.

Up to here a notebook is one text, as a file is; what leaves the engine counts as its reader does.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mha_lint.model.finding import Finding, Undecided
from mha_lint.model.report import SiteReport, TargetReport
from mha_lint.model.settings import Settings
from mha_lint.model.source import Span
from mha_lint.targets.notebooks.read import Notebook, NotebookError, read_notebook
from mha_lint.targets.notebooks.targets import replaced
from mha_lint.targets.source import NOTEBOOK, SourceError, read_source

_LINE = re.compile(r"\blines? (\d+)\b(?: of (\S+\.(?:py|ipynb)))?")


def in_cells(targets: Sequence[TargetReport], settings: Settings) -> list[TargetReport]:
    """Return `targets` with the lines of notebooks counted in their cells."""
    return [_target(target, _book(target.path, settings)) for target in targets]


def notes_in_cells(
    notes: Sequence[str], targets: Sequence[TargetReport], settings: Settings
) -> list[str]:
    """Return run-wide `notes` with the lines of notebooks counted in their cells."""
    out = list(notes)
    for path in _notebooks(targets):
        book = _book(path, settings)
        out = [_places(note, path, book) for note in out] if book is not None else out
    return out


def left_out(targets: Sequence[TargetReport], settings: Settings) -> list[str]:
    """Return a note on every cell, and on every replaced definition, that nothing was said of."""
    found: list[str] = []
    for path in _notebooks(targets):
        book = _book(path, settings)
        if book is None:
            continue
        here = [target for target in targets if target.path == path]
        said = {target.reason for target in here}
        found += [
            f"{path}: {one}; the other cells are read"
            for one in book.broken
            if str(one) not in said
        ]
        found += [
            f"{path}: cell {cell} writes {file} and is not read: check that file"
            for cell, file in book.written
        ]
        seen = {(target.class_name, target.line) for target in here}
        names = {target.class_name for target in here}
        try:
            older = replaced(read_source(str(Path(settings.cwd, path))), book)
        except SourceError:
            continue
        found += [
            f"{path}: {one.qualname} of cell {cell} is replaced later, and was not checked: "
            f"name it {path}::{one.qualname}@{cell}"
            for cell, one in older
            if one.qualname in names and (one.qualname, one.line) not in seen
        ]
    return found


def _notebooks(targets: Sequence[TargetReport]) -> list[str]:
    return list(dict.fromkeys(t.path for t in targets if t.path.endswith(NOTEBOOK)))


def _book(path: str, settings: Settings) -> Notebook | None:
    if not path.endswith(NOTEBOOK):
        return None
    try:
        return read_notebook(str(Path(settings.cwd, path)))
    except (NotebookError, OSError):
        return None


def _target(target: TargetReport, book: Notebook | None) -> TargetReport:
    if book is None:
        return target
    text = partial(_text, path=target.path, book=book)
    cell, line = _place(book, target.line)
    return dataclasses.replace(
        target,
        line=line,
        cell=cell,
        reason=None if target.reason is None else text(target.reason),
        hint=None if target.hint is None else text(target.hint),
        detail=_traceback(target.detail, target.path, book),
        sites=tuple(_site(site, book) for site in target.sites),
        findings=tuple(_finding(one, target.path, book) for one in target.findings),
        elsewhere=tuple(_finding(one, target.path, book) for one in target.elsewhere),
        undecided=tuple(Undecided(u.code, u.site, text(u.why)) for u in target.undecided),
        notes=tuple(map(text, target.notes)),
    )


def _site(site: SiteReport, book: Notebook) -> SiteReport:
    cell, line = _place(book, site.line)
    return dataclasses.replace(site, line=line or site.line, cell=cell)


def _finding(finding: Finding, path: str, book: Notebook) -> Finding:
    text = partial(_text, path=path, book=book)
    return dataclasses.replace(
        finding,
        message=text(finding.message),
        here=text(finding.here),
        why=text(finding.why),
        help=text(finding.help),
        evidence=tuple(map(text, finding.evidence)),
        confirmed_by=None if finding.confirmed_by is None else text(finding.confirmed_by),
        span=_span(finding.span, path, book),
        labels=tuple(
            dataclasses.replace(x, span=_span(x.span, path, book), text=text(x.text))
            for x in finding.labels
        ),
    )


def _span(span: Span, path: str, book: Notebook) -> Span:
    cell = book.cell_at(span.line) if span.path == path else None
    if cell is None:
        return span
    above = cell.first - 1
    return dataclasses.replace(
        span,
        cell=cell.number,
        line=span.line - above,
        end_line=span.end_line - above if span.end_line else 0,
        column=span.column + cell.indent,
        end_column=span.end_column + cell.indent if span.end_column else 0,
    )


def _place(book: Notebook, line: int | None) -> tuple[int | None, int | None]:
    cell = book.cell_at(line) if line else None
    if cell is None or line is None:
        return None, line
    return cell.number, line - cell.first + 1


def _text(text: str, *, path: str, book: Notebook) -> str:
    """Return a sentence on the notebook with its lines counted in cells."""
    said = [str(one) for one in book.broken]
    if text in said:  # counted in its cell already
        return text
    name = Path(path).name

    def told(match: re.Match[str]) -> str:
        cell, line = _place(book, int(match[1]))
        elsewhere = match[2] is not None and match[2] != name
        if cell is None or elsewhere:
            return match[0]
        return f"cell {cell}, line {line}"

    return _LINE.sub(told, _places(text, path, book))


def _traceback(text: str, path: str, book: Notebook) -> str:
    """Return a traceback with its lines in the notebook counted in cells."""

    def told(match: re.Match[str]) -> str:
        cell, line = _place(book, int(match[2]))
        return match[0] if cell is None else f"{match[1]}cell {cell}, line {line}"

    return re.sub(rf'({re.escape(Path(path).name)}", )line (\d+)', told, text)


def _places(text: str, path: str, book: Notebook) -> str:
    """Return `text` with every ``book.ipynb:12`` as ``book.ipynb:cell 3:4``."""

    def told(match: re.Match[str]) -> str:
        cell, line = _place(book, int(match[1]))
        name = match[0].rpartition(":")[0]
        return match[0] if cell is None else f"{name}:cell {cell}:{line}"

    return re.sub(rf"{re.escape(Path(path).name)}:(\d+)", told, text)
