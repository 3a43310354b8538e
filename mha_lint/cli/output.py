"""Where a report goes: a file, a pipe or a terminal, and what may be shown there."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click

from mha_lint.cli.failure import Failure
from mha_lint.model.whole_files import write_whole
from mha_lint.report.view import View

_NARROWEST, _WIDEST = 60, 140
_SIGNS = "│…✗→"


def view_of(stream: TextIO, *, cwd: Path, verbose: bool = False, quiet: bool = False) -> View:
    """Return the view of `stream`: a terminal's own width and colours, else a plain 100 columns.

    ``NO_COLOR`` and ``TERM=dumb`` switch colours off, ``FORCE_COLOR`` switches them on.
    """
    terminal = stream.isatty()
    width = View(str(cwd)).width
    if terminal:
        width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)
    color = terminal and os.environ.get("TERM") != "dumb"
    if os.environ.get("FORCE_COLOR"):
        color = True
    if os.environ.get("NO_COLOR"):
        color = False
    return View(str(cwd), width, color, _can_show(stream, _SIGNS), verbose, quiet)


def file_view(*, cwd: Path, verbose: bool = False, quiet: bool = False) -> View:
    """Return the view of a file that ``-o`` names."""
    return View(str(cwd), verbose=verbose, quiet=quiet)


def write_stdout(text: str) -> None:
    """Print `text`; a reader that has gone away (``| head``) is no error."""
    try:
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def require_writable(path: Path) -> None:
    """Refuse an ``-o`` file that cannot be written, before the work is done.

    Raises:
        Failure: names the file and what to do.
    """
    if path.is_dir():
        raise Failure(f"{path}: is a folder; give -o a file name")
    if not path.parent.is_dir():
        raise Failure(f"{path}: the folder {path.parent} does not exist; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise Failure(f"{path}: cannot be written (permission denied); give -o another file")


def write_file(path: Path, text: str) -> None:
    """Write `text` to `path`, which holds the old or the new one at every moment.

    Raises:
        Failure: names the file and why it cannot be written.
    """
    try:
        write_whole(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise Failure(f"{path}: cannot be written ({error.strerror or error})") from error


@contextlib.contextmanager
def stdout_kept() -> Iterator[None]:
    """Send what is printed inside the block to stderr, even by C code or a child process.

    stdout carries the report and nothing else: it may be JSON that a program reads.
    """
    try:
        real = (sys.stdout.fileno(), sys.stderr.fileno()) == (1, 2)
    except (OSError, ValueError, AttributeError):  # objects without a file
        real = False
    if not real:
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


def say(text: str) -> None:
    """Print one line for the person, which is no part of the report, on stderr."""
    click.echo(text, err=True)


def _can_show(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
