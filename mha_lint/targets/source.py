"""Read and parse a source file; every way that can fail is one clear sentence."""

from __future__ import annotations

import ast
import functools
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path

from mha_lint.targets.notebooks.ipython import plain_script
from mha_lint.targets.notebooks.read import Notebook, NotebookError, read_notebook

NOTEBOOK = ".ipynb"


class SourceError(Exception):
    """A file cannot be read as Python source: ``reason`` says why, ``hint`` what to do."""

    def __init__(self, reason: str, hint: str = "") -> None:
        """Say why, and what to do."""
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One parsed file; of a ``notebook``, ``text`` holds all cells, and so do its lines."""

    path: str
    text: str
    tree: ast.Module
    notebook: Notebook | None = None

    @property
    def lines(self) -> list[str]:
        """Return the lines without their ends."""
        return self.text.splitlines()


def read_source(path: str) -> Source:
    """Read and parse `path`, in the encoding that its coding comment states, else UTF-8.

    Notebooks are read too. In a script that was exported from one, lines that only IPython
    understands are put out, so that the rest can be read.

    Raises:
        SourceError: missing, a folder, unreadable, not in its encoding, or a syntax error.
    """
    file = Path(path)
    if file.is_dir():
        raise SourceError(f"{path} is a folder, not a file")
    try:
        if file.suffix == NOTEBOOK:
            book = read_notebook(path)
            return Source(path, book.text, parse(book.text, path), book)
        with file.open("rb") as handle:
            encoding, _ = tokenize.detect_encoding(handle.readline)
        text = file.read_bytes().decode(encoding)
    except FileNotFoundError:
        raise SourceError(f"no such file: {path}") from None
    except (UnicodeDecodeError, SyntaxError) as error:
        reason = f"{path} is not UTF-8 text"
        if isinstance(error, UnicodeDecodeError):
            reason += f" (byte {error.start})"
        raise SourceError(reason, "save it as UTF-8, or state its coding in line 1") from None
    except NotebookError as error:
        raise SourceError(error.reason, error.hint) from error
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return Source(path, text, parse(text, path))
    except SourceError:
        text = plain_script(text)
        return Source(path, text, parse(text, path))


def definition(
    source: Source, qualname: str, line: int | None = None
) -> ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the definition of `qualname` at `line`; by its name alone, the one in force.

    Of several at the top level that is the last one.
    """
    name = qualname.rpartition(".")[2]
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [n for n in ast.walk(source.tree) if isinstance(n, kinds) and n.name == name]
    top = [n for n in found if n in source.tree.body]
    exact = [n for n in found if n.lineno == line]
    return next(iter([*exact, *top[::-1], *found]), None)


def cached_source(path: str) -> Source:
    """Do as `read_source`, but parse a file again only when it has changed.

    Raises:
        SourceError: as `read_source`.
    """
    try:
        stamp = Path(path).stat().st_mtime_ns
    except OSError:
        raise SourceError(f"no such file: {path}") from None
    return _cached(path, stamp)


@functools.lru_cache(maxsize=32)
def _cached(path: str, _stamp: int) -> Source:
    return read_source(path)


def parse(text: str, path: str) -> ast.Module:
    """Parse `text`; a syntax error becomes a `SourceError` that names its line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are the user's, and harmless
            return ast.parse(text, filename=path)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else path
        raise SourceError(f"syntax error at {where}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceError(f"{path} cannot be parsed: {error}") from None
