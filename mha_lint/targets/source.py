"""Read and parse a source file; every way that can fail is one clear sentence."""

from __future__ import annotations

import ast
import functools
import stat
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path

from mha_lint.model.dotted import is_deep
from mha_lint.model.printable import printable
from mha_lint.targets.notebooks.ipython import plain_script
from mha_lint.targets.notebooks.read import Notebook, NotebookError, read_notebook

NOTEBOOK = ".ipynb"
LARGEST = 2 << 20
"""Bytes: a tree takes some hundred times as much memory as its text."""


class SourceError(Exception):
    """A file cannot be read as Python source: ``reason`` says why, ``hint`` what to do."""

    def __init__(self, reason: str, hint: str = "") -> None:
        """Say why, and what to do."""
        super().__init__(reason)
        self.reason = printable(reason)
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
    try:
        _require_file(path)
        if Path(path).suffix == NOTEBOOK:
            book = read_notebook(path)
            return Source(path, book.text, parse(book.text, path), book)
        text = _decoded(path)
    except FileNotFoundError:
        raise SourceError(f"no such file: {path}") from None
    except NotebookError as error:
        raise SourceError(error.reason, error.hint) from error
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return Source(path, text, parse(text, path))
    except SourceError:
        text = plain_script(text)
        return Source(path, text, parse(text, path))


def _require_file(path: str) -> None:
    """Refuse what is no file of a reasonable size: reading a pipe or a device may never end.

    Raises:
        SourceError: says what it is.
        OSError: it cannot be looked at.
    """
    try:
        found = Path(path).stat()
    except ValueError:  # a null byte
        raise FileNotFoundError from None
    if stat.S_ISDIR(found.st_mode):
        raise SourceError(f"{path} is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(f"{path} is no regular file, but a pipe, socket or device")
    largest = LARGEST * (16 if path.endswith(NOTEBOOK) else 1)  # of a notebook most is pictures
    if found.st_size > largest:
        size = f"{found.st_size >> 20} MiB large, more than the {largest >> 20} MiB that are read"
        raise SourceError(f"{path} is {size}", "move what is to be checked into a file of its own")


def _decoded(path: str) -> str:
    """Return the text of a Python file.

    Raises:
        SourceError: it is no text in its encoding, or states none that there is.
        OSError: it cannot be opened.
    """
    stated = "utf-8"
    try:
        with Path(path).open("rb") as handle:
            stated, _ = tokenize.detect_encoding(handle.readline)
            handle.seek(0)
            text = handle.read().decode(stated)
        if text.endswith("\\\r\n"):
            text = text[:-3] + "\n"  # Python lets this pass at the end, and no other end of a line
        return text.replace("\r\n", "\n").replace("\r", "\n")  # as Python itself reads lines
    except UnicodeDecodeError as error:
        name = "UTF-8" if stated in ("utf-8", "utf-8-sig") else stated
        reason = f"{path} is not {name} text (byte {error.start})"
    except SyntaxError as error:  # of detect_encoding
        reason = f"{path} states a coding that cannot be used ({str(error.msg)[:80]})"
        if "invalid" in str(error.msg):
            reason = f"{path} is not UTF-8 text (line 1 or 2)"
    except OSError:
        raise
    except Exception as error:  # a codec that is none of texts, or that fails in its own way
        reason = f"{path} cannot be read in its coding {stated} ({type(error).__name__})"
    raise SourceError(reason, "save it as UTF-8, or state its coding in line 1")


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
    if is_deep(text):
        raise SourceError(f"{path} cannot be parsed: it is nested too deeply, or too long")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are the user's, and harmless
            return ast.parse(text, filename=path)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else path
        raise SourceError(f"syntax error at {where}: {error.msg}") from None
    except (RecursionError, MemoryError):  # what Python's own parser raises
        raise SourceError(
            f"{path} cannot be parsed: it is nested too deeply, or too long"
        ) from None
    except ValueError as error:
        raise SourceError(f"{path} cannot be parsed: {error}") from None
