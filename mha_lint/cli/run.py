"""``mha-lint run``: watch a program and check the attention that it really computes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import click

from mha_lint.cli import completion, options
from mha_lint.cli.engine_access import load_engine
from mha_lint.cli.output import file_view, require_writable, view_of, write_file
from mha_lint.cli.program import Ended, Program, module, script
from mha_lint.cli.progress import progress_bar
from mha_lint.cli.request import CommandLine, Request, make_request
from mha_lint.model.report import RunReport, Status
from mha_lint.model.target import TargetSpec
from mha_lint.report.formats import FORMATS
from mha_lint.report.summary import remarks, summary
from mha_lint.targets.arrival import Arrival

PATIENCE = 200
"""Calls of known attention modules after which --stop-after-capture ends the program."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument(
    "program", nargs=-1, required=True, metavar="SCRIPT [ARGS]...", type=click.UNPROCESSED,
    shell_complete=completion.programs,
)  # fmt: skip
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module, as for python -m.")
@click.option(
    "--stop-after-capture",
    "stop_after",
    is_flag=False,
    flag_value=PATIENCE,
    type=click.IntRange(min=1),
    metavar="[N]",
    help=f"End the program when N calls of attention have brought nothing new (alone: {PATIENCE}).",
)
@options.expected
@options.which_rules
@options.how_to_print(*FORMATS)
@options.how_to_measure
@options.time_limit
@options.which_configuration
def run(program: tuple[str, ...], as_module: bool, stop_after: int | None, **given: Any) -> None:
    """Run a program and check every attention module or function that it calls.

    The program runs as it does under python, with its own arguments, output and exit code. The first
    call of every distinct attention module is copied, and checked when the program has ended. The
    report goes to stderr, or to the file of -o.

    \b
    Example:
        mha-lint run -- train.py --steps 10
        mha-lint run -m package.train --steps 10
        mha-lint run --stop-after-capture -o report.json --format json -- train.py

    Exit code: the program's own. With --fail-on, a program that ends with 0 gives 1 if there are
    findings; with --strict, 2 if something was not checked.
    """
    line = CommandLine(**given)
    request = make_request((".",), line, Path.cwd())
    if request.output is not None:
        require_writable(request.output)
    made = module(program[0], program[1:]) if as_module else script(program[0], program[1:])
    watch = _Watch(request, stop_after, sys.stderr)
    ended = watch.run(made)
    if watch.forked():
        click.get_current_context().exit(ended.code)
    report = watch.report()
    if ended.interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    click.get_current_context().exit(ended.code or _code(report, line, request))


def _code(report: RunReport | None, line: CommandLine, request: Request) -> int:
    """Return the exit code of what was found, as far as it was asked for."""
    if report is None:
        return 0
    failed = any(t.status is Status.FAILED or t.undecided for t in report.targets)
    if line.strict and (failed or report.crashes):
        return 2
    if line.fail_on is None or request.exit_zero:
        return 0
    return int(any(f.severity.rank >= request.fail_on.rank for f in report.findings()))


class _Watch:
    """One watched run: the watcher comes when the program imports torch."""

    def __init__(self, request: Request, stop_after: int | None, stream: TextIO) -> None:
        self._request = request
        self._stop_after = stop_after
        self._stream = stream
        self._process = os.getpid()
        self._cwd = Path.cwd()
        self._engine: Any = None
        self._watcher: Any = None
        self._base = sys._getframe(0)
        self._reported = False

    def run(self, program: Program) -> Ended:
        """Run `program` to its end."""
        self._base = sys._getframe(0)
        arrival = Arrival("torch", self._start)
        with self._exits_reported():
            arrival.install()
            try:
                return program.run()
            finally:
                arrival.remove()
                if self._watcher is not None:
                    self._watcher.stop()

    def forked(self) -> bool:
        """Return whether this is a child of the process that was started."""
        return os.getpid() != self._process

    def _start(self) -> None:
        before = os.environ.get("PYTORCH_JIT")
        self._engine = load_engine()
        if before is None:  # it is our own measure; the program's children need it not
            os.environ.pop("PYTORCH_JIT", None)
        else:
            os.environ["PYTORCH_JIT"] = before
        cwd = str(self._cwd)
        self._watcher = self._engine.watcher(cwd, stop_after=self._stop_after)
        self._watcher.start(self._base)

    @contextlib.contextmanager
    def _exits_reported(self) -> Iterator[None]:
        """Report before ``os._exit``, which ends the process at once."""
        real = os._exit

        def leave(status: int) -> None:
            if not self.forked() and not self._reported:
                with contextlib.suppress(Exception):
                    if self._watcher is not None:
                        self._watcher.stop()
                    self.report()
            real(status)

        os._exit = leave  # type: ignore[assignment]
        try:
            yield
        finally:
            os._exit = real

    def report(self) -> RunReport | None:
        """Judge what was seen and print it."""
        self._reported = True
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the program may have closed it
                stream.flush()
        request = self._request
        if self._watcher is None:
            if not request.quiet:
                self._say("the program did not import torch: there is nothing to check")
            return None
        (spec,) = request.specs
        expect = spec.expect if isinstance(spec, TargetSpec) else ()
        with progress_bar(shown=not request.quiet) as progress:
            report: RunReport = self._engine.check_watched(
                self._watcher.seen(), request.settings, progress, expect=expect
            )
        render = FORMATS[request.format]
        if request.output is None:
            view = view_of(
                self._stream, cwd=self._cwd, verbose=request.verbose, quiet=request.quiet
            )
            self._write(render(report, view))
            return report
        view = file_view(cwd=self._cwd, verbose=request.verbose, quiet=request.quiet)
        write_file(self._cwd / request.output, render(report, view))
        if not request.quiet:
            self._say(
                "; ".join([summary(report), *remarks(report), f"written to {request.output}"])
            )
        return report

    def _say(self, text: str) -> None:
        self._write(f"mha-lint: {text}\n")

    def _write(self, text: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        with contextlib.suppress(ValueError, OSError):  # closed, or its reader has gone
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()
