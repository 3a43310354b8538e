"""The command group, and what a process makes of its outcome.

Exit codes: those of the report for `check`; 2 for bad usage or configuration; 130 when interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from mha_lint import __version__
from mha_lint.cli.commands import Commands
from mha_lint.cli.failure import Failure
from mha_lint.model.settings import UsageError

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_exit = os._exit
"""Kept, since it is out of user code's reach while that runs, and so would be out of ours."""


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__)
def cli() -> None:
    """Tell whether attention code computes attention, where it goes wrong, and prove it.

    \b
    Example:
        mha-lint check attention.py
        mha-lint inspect attention.py::MultiHeadAttention
        mha-lint explain MHA204
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; nothing is raised.

    `arguments`: None for those of the process.
    """
    try:
        code = cli.main(arguments, prog_name="mha-lint", standalone_mode=False)
    except click.exceptions.Abort:
        return _interrupted()
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except UsageError as error:
        Failure(str(error)).show()
        return EXIT_USAGE
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        _silence_stdout()
        return EXIT_USAGE
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """Run the command line as the process's own main function."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    code = run()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
    sys.stderr.flush()
    waiting = [
        t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()
    ]
    if waiting:
        _exit(code)  # the interpreter would wait for threads that user code started, for ever
    sys.exit(code)


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    """End the process at once: a KeyboardInterrupt would end in what user code catches."""
    restore = "\x1b[?25h\r\x1b[K" if sys.stderr.isatty() else ""  # of the progress bar: its cursor
    os.write(2, f"{restore}interrupted\n".encode())
    _exit(EXIT_INTERRUPTED)


def _interrupted() -> int:
    click.echo("interrupted", err=True)
    return EXIT_INTERRUPTED


def _silence_stdout() -> None:
    """Send what is still to be written nowhere: the reader of our output has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
