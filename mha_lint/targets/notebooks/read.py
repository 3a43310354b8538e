"""Read a notebook: its code cells as one Python text, and which cell each line comes from.

A cell's number is its place among all cells of the notebook, text cells included, from 1: what a
reader counts. A cell that is no Python leaves empty lines behind, so that nothing moves.
"""

from __future__ import annotations

import bisect
import importlib
import json
import linecache
import re
import textwrap
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mha_lint.targets.notebooks.ipython import parses, plain_cell, syntax_error

PYTHON = frozenset({"", "python", "python3", "ipython", "ipython3", "sage", "sagemath"})
INSTALL = "pip install 'mha-lint[notebook]' (it reads notebooks with nbformat)"
_WRITES = re.compile(r"\s*%%(?:writefile|file)\b.*?(?<![^\s'\"])(?P<file>[^\s'\"]++(?<=\.py))")
_DEFINES = re.compile(r"^([ \t]*)(?:class|def|async[ \t]+def)[ \t]+(\w+)", re.MULTILINE)


class NotebookError(Exception):
    """A notebook cannot be read: ``reason`` says why, ``hint`` what to do."""

    def __init__(self, reason: str, hint: str = "") -> None:
        """Say why, and what to do."""
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class OtherLanguageError(NotebookError):
    """A notebook is written in another language than Python."""


class NoReaderError(NotebookError):
    """Notebooks cannot be read here, as nbformat is not installed."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell: its ``number``, the joined text's line that holds its ``first`` line, how many
    ``lines`` it has, and by how many columns ``indent`` it stood further right.
    """

    number: int
    first: int
    lines: int
    indent: int = 0


@dataclass(frozen=True, slots=True)
class BrokenCell:
    """A cell with a syntax error, and the names that it seems to define."""

    cell: int
    line: int
    message: str
    defines: tuple[str, ...]

    def __str__(self) -> str:
        """Return "syntax error in cell 3, line 2: invalid syntax"."""
        return f"syntax error in cell {self.cell}, line {self.line}: {self.message}"


@dataclass(frozen=True, slots=True, eq=False)
class Notebook:
    """A notebook's code as one ``text``, with the cells that it comes from.

    ``written``: cells that only write definitions into another file, and its name.
    """

    path: str
    text: str
    cells: tuple[Cell, ...]
    broken: tuple[BrokenCell, ...]
    written: tuple[tuple[int, str], ...] = ()

    def cell_at(self, line: int) -> Cell | None:
        """Return the cell that line `line` of the joined text comes from."""
        index = bisect.bisect_right([cell.first for cell in self.cells], line) - 1
        return self.cells[index] if index >= 0 else None

    def cell_of(self, line: int) -> int:
        """Return the number of the cell that line `line` of the joined text comes from."""
        cell = self.cell_at(line)
        return cell.number if cell is not None else 0


def read_notebook(path: str) -> Notebook:
    """Read the notebook at `path`, and tell `linecache` its joined text.

    Raises:
        NotebookError: it is no notebook of Python, or nbformat is not installed.
        OSError: it cannot be opened.
    """
    stat = Path(path).stat()
    found = _read(path, stat.st_mtime_ns, stat.st_size)
    lines = [f"{line}\n" for line in found.text.split("\n")]
    for name in {path, str(Path(path).absolute())}:
        linecache.cache[name] = len(found.text), None, lines, name  # None: never out of date
    return found


@lru_cache(maxsize=32)
def _read(path: str, _changed: int, _size: int) -> Notebook:
    return joined(path, _code_cells(path))


def cell_texts(data: bytes) -> list[str] | None:
    """Return the text of every cell in the bytes of a notebook, and perhaps more, without nbformat.

    None where that cannot be told, so that reading it must tell why.
    """
    found: list[str] = []

    def collected(entry: dict[str, Any]) -> dict[str, Any]:
        for key in ("source", "input"):  # input: before version 4 of the format
            text = entry.get(key)
            if isinstance(text, list) and all(isinstance(line, str) for line in text):
                found.append("".join(text))
            elif isinstance(text, str):
                found.append(text)
        return entry

    try:
        book = json.loads(data.decode("utf-8-sig"), object_hook=collected)
    except (ValueError, RecursionError):
        return None
    if not isinstance(book, dict) or not isinstance(book.get("nbformat"), int):
        return None
    cells = book.get("cells", book.get("worksheets"))
    readable = isinstance(cells, list) and all(isinstance(cell, dict) for cell in cells)
    return found if readable else None


def joined(path: str, sources: list[tuple[int, str]]) -> Notebook:
    """Return the code cells in `sources`, pairs of number and text, as one notebook."""
    rows: list[str] = []
    cells: list[Cell] = []
    broken: list[BrokenCell] = []
    written: list[tuple[int, str]] = []
    for number, source in sources:
        source = source.replace("\r\n", "\n").replace("\r", "\n")
        text, indent = _dedented(source)
        plain = plain_cell(text)
        error = syntax_error(plain) if plain is not None else None
        if error is not None:
            broken.append(BrokenCell(number, error[0], error[1], _defined(text)))
        if plain is None and (file := _WRITES.match(text)) and _defined(text):
            written.append((number, file["file"]))
        lines = source.split("\n")
        cells.append(Cell(number, len(rows) + 1, len(lines), indent))
        rows += [""] * len(lines) if plain is None or error is not None else plain.split("\n")
    text = "\n".join(rows) + "\n"
    return Notebook(path, text, tuple(cells), tuple(broken), tuple(written))


def _defined(text: str) -> tuple[str, ...]:
    """Return the names that a text which is no Python seems to define, the outermost alone."""
    found = _DEFINES.findall(text)
    least = min((len(indent) for indent, _ in found), default=0)
    return tuple(dict.fromkeys(name for indent, name in found if len(indent) == least))


def _dedented(source: str) -> tuple[str, int]:
    """Return a cell that is indented as a whole without that, as IPython runs it, and by how much."""
    if not source[:1].isspace() or parses(source):
        return source, 0
    text = textwrap.dedent(source)
    first = next((line for line in source.split("\n") if line.strip()), "")
    plain = next((line for line in text.split("\n") if line.strip()), "")
    return text, len(first) - len(plain)


def _code_cells(path: str) -> list[tuple[int, str]]:
    """Return number and source of the code cells in Python."""
    book = _parsed(path)
    kernel, info = (_inside(book, "metadata", key) for key in ("kernelspec", "language_info"))
    language = str(kernel.get("language") or info.get("name") or "")
    if language.lower() not in PYTHON:
        raise OtherLanguageError(f"{path} is a notebook of {language[:80]}, not of Python")
    return [
        (number, str(cell.get("source") or ""))
        for number, cell in enumerate(book["cells"], 1)
        if cell.get("cell_type") == "code" and _is_python(cell)
    ]


def _is_python(cell: dict[str, Any]) -> bool:
    """Tell whether a cell of a notebook of several languages is in Python."""
    language = _inside(cell, "metadata", "vscode").get("languageId", "python")
    return str(language).lower() in PYTHON


def _inside(value: Any, *keys: str) -> dict[str, Any]:
    """Return the object under `keys`, an empty one where there is none: nobody checks a notebook."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _parsed(path: str) -> Any:
    """Return the notebook at `path` as nbformat 4."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nbformat: Any = importlib.import_module("nbformat")
    except ImportError:
        raise NoReaderError(
            f"{path} is a notebook, and nbformat is not installed", INSTALL
        ) from None
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotebookError(f"{path} is not UTF-8 text (byte {error.start})") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on ids that are missing, which nobody needs here
            book = nbformat.convert(nbformat.reader.reads(text), 4)
        cells_are_there = all(isinstance(cell, dict) for cell in book["cells"])
    except Exception as error:  # nbformat raises what its parts raise: KeyError, AttributeError ...
        why = f"{type(error).__name__}: {error}".split("\n")[0][:100]
        raise NotebookError(f"{path} is no notebook that can be read ({why})") from None
    if not cells_are_there:
        raise NotebookError(f"{path} is no notebook that can be read (a cell is no object)")
    return book
