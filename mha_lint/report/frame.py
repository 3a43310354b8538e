"""The code frame of a finding: its source lines with the marked stretches underlined."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from mha_lint.model.finding import Finding
from mha_lint.model.lines import lines_of
from mha_lint.model.source import Span
from mha_lint.report.cells import cell_lines
from mha_lint.report.lines import clean, line, paragraph
from mha_lint.report.view import View

_CONTEXT = 2
"""Lines shown above the first marked one."""
_LONGEST = 4
"""A stretch of more lines than this is underlined on its first line only."""
_TAB = 4
_ROOM = 40
"""With fewer columns than this below the underlined stretch, its text starts further left."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """One stretch to underline."""

    span: Span
    text: str
    sign: str
    style: str

    @property
    def lines(self) -> range:
        """Return the lines that are underlined."""
        end = max(self.span.end_line, self.span.line)
        many = end - self.span.line >= _LONGEST
        return range(self.span.line, (self.span.line if many else end) + 1)


def code_frame(finding: Finding, view: View, style: str) -> list[Text]:
    """Return the frame of `finding`, one block for each file; empty if no source can be read."""
    marks = [_Mark(finding.span, finding.here, "^", style)]
    marks += [_Mark(label.span, label.text, "-", "blue") for label in finding.labels]
    out: list[Text] = []
    for place in dict.fromkeys(mark.span.place for mark in marks):
        own = [m for m in marks if m.span.place == place]
        source = source_lines(own[0].span, view)
        here = [m for m in own if m.span.line <= len(source)]
        if not here:
            out += [t for m in own for t in _unplaced(m, view)]
            continue
        gutter = max(4, len(str(max(m.lines[-1] for m in here)))) + 1
        if place != finding.span.place:
            first = min(m.span.line for m in here)
            out.append(line(" " * gutter, ("--> ", "blue"), f"{place}:{first}"))
        out += _block(source, here, gutter, view)
    return out


def source_lines(span: Span, view: View) -> list[str]:
    """Return the lines that `span` counts in, without line breaks; none if they cannot be read."""
    absolute = os.path.join(view.cwd, span.path)  # noqa: PTH118 - joins strings, no file access
    if span.cell:
        return cell_lines(absolute, span.cell)
    return [text.rstrip("\r\n") for text in lines_of(absolute)]


def _block(source: Sequence[str], marks: list[_Mark], gutter: int, view: View) -> Iterator[Text]:
    previous = 0
    for number in _shown(marks, len(source)):
        if previous and number > previous + 1:
            yield line(("…".rjust(gutter), "dim"))
        previous = number
        row = _Row(source[number - 1], view.width - gutter - 3, _start(marks, number, source))
        yield line((f"{number:>{gutter}} │ ", "dim"), row.text)
        for mark in sorted((m for m in marks if number in m.lines), key=lambda m: -m.span.column):
            yield from _underline(mark, number, row, gutter, view)


def _shown(marks: list[_Mark], length: int) -> list[int]:
    """Return the numbers of the lines to show; a gap of a single line is filled."""
    numbers = {n for mark in marks for n in mark.lines if n <= length}
    numbers |= set(range(max(1, marks[0].span.line - _CONTEXT), marks[0].span.line))
    numbers |= {n for n in range(1, length) if n - 1 in numbers and n + 1 in numbers}
    return sorted(numbers)


def _start(marks: list[_Mark], number: int, source: Sequence[str]) -> int:
    """Return the first column of line `number` that must be seen, 0-based."""
    columns = [_columns(m, number, source[number - 1])[0] for m in marks if number in m.lines]
    return min(columns, default=0)


def _columns(mark: _Mark, number: int, text: str) -> tuple[int, int]:
    """Return the stretch of line `number` that `mark` underlines, 0-based, the end exclusive."""
    span = mark.span
    content = len(text.rstrip())
    first = span.column - 1 if number == span.line else len(text) - len(text.lstrip())
    last = content
    if number == span.end_line and span.end_column > 0:
        last = span.end_column - 1
    first = max(0, min(first, content))
    return first, max(first + 1, min(last, content))


def _underline(mark: _Mark, number: int, row: _Row, gutter: int, view: View) -> Iterator[Text]:
    first, last = _columns(mark, number, row.source)
    start, stop = row.cell(first), row.cell(last)
    margin = (" " * gutter + " │ ", "dim")
    signs = mark.sign * max(1, stop - start)
    final = number == mark.lines[-1] and mark.text
    room = view.width - (gutter + 3 + start + len(signs) + 1)
    fits = final and len(mark.text) <= room
    text = f" {mark.text}" if fits else ""
    yield line(margin, " " * start, (signs + text, mark.style))
    if final and not fits:
        indent = start if room + len(signs) + 1 >= _ROOM else 8
        narrower = View(view.cwd, view.width - gutter - 3)
        for text_line in paragraph(mark.text, narrower, indent=indent, hang=0, style=mark.style):
            yield Text.assemble(margin, text_line)


def _unplaced(mark: _Mark, view: View) -> list[Text]:
    return paragraph(f"{mark.span}: {mark.text}", view, hang=0) if mark.text else []


class _Row:
    """One source line as shown: tabs expanded, cropped to `room` cells around column `start`."""

    def __init__(self, source: str, room: int, start: int) -> None:
        self.source = source
        self._room = room
        self._shift = 0
        self._cells = [0]
        shown = ""
        for character in clean(source.rstrip()):
            tab = character == "\t"
            width = _TAB - self._cells[-1] % _TAB if tab else cell_len(character)
            shown += " " * width if tab else character
            self._cells.append(self._cells[-1] + width)
        if self._cells[-1] > room and self.cell(start) > room * 2 // 3:
            self._shift = self._cells[start] - room // 3
        self.text = self._cropped(shown)

    def cell(self, column: int) -> int:
        """Return the cell in which character `column` of the source begins on screen."""
        cell = self._cells[min(column, len(self._cells) - 1)]
        return max(0, min(cell - self._shift, self._room))

    def _cropped(self, shown: str) -> str:
        out = ""
        position = 0
        for character in shown:
            out += character if self._shift <= position < self._shift + self._room else ""
            position += cell_len(character)
        if self._shift:
            out = "…" + out[1:]
        return out[:-1] + "…" if position > self._shift + self._room else out
