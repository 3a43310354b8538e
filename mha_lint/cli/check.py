"""``mha-lint check``: the main job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from mha_lint.cli import completion, options
from mha_lint.cli.engine_access import engine_for
from mha_lint.cli.output import (
    file_view,
    require_writable,
    say,
    view_of,
    write_file,
    write_stdout,
)
from mha_lint.cli.progress import progress_bar
from mha_lint.cli.request import CommandLine, Request, make_request
from mha_lint.model.report import RunReport
from mha_lint.report.formats import FORMATS
from mha_lint.report.summary import remarks, summary


@click.command()
@click.argument("targets", nargs=-1, metavar="[TARGET]...", shell_complete=completion.targets)
@options.how_to_call
@options.which_rules
@options.how_to_print(*FORMATS)
@options.how_to_measure
@options.time_limit
@options.how_to_run
@options.which_configuration
def check(targets: tuple[str, ...], **given: Any) -> None:
    """Build each target, run it once and judge the attention in it.

    A TARGET is a file, a class or function in it, a name in an importable module, or a folder.
    Without one, the [[tool.mha-lint.target]] tables of the configuration are checked, or else the
    current folder.

    \b
    Example:
        mha-lint check attention.py
        mha-lint check attention.py::MHA --build "MHA(64, 8)" --call "torch.randn(2, 10, 64)"
        mha-lint check models/ --select MHA1,MHA2 --format json -o report.json
        mha-lint check package.attention:CausalSelfAttention --expect causal

    Exit code: 0 nothing to report, 1 findings, 2 something was not checked.
    """
    request = make_request(targets, CommandLine(**given), Path.cwd())
    if request.output is not None:
        require_writable(request.output)
    with engine_for(request.running) as engine, progress_bar(shown=not request.quiet) as progress:
        report: RunReport = engine.check(request.specs, request.settings, progress)
    emit(report, request)
    click.get_current_context().exit(
        report.exit_code(
            request.fail_on, exit_zero=request.exit_zero, strict=request.settings.strict
        )
    )


def emit(report: RunReport, request: Request) -> None:
    """Print `report` or write it to the file that was asked for."""
    cwd = Path(request.settings.cwd)
    render = FORMATS[request.format]
    if request.output is None:
        view = view_of(sys.stdout, cwd=cwd, verbose=request.verbose, quiet=request.quiet)
        write_stdout(render(report, view))
        return
    view = file_view(cwd=cwd, verbose=request.verbose, quiet=request.quiet)
    write_file(request.output, render(report, view))
    if not request.quiet:
        say("; ".join([summary(report), *remarks(report), f"written to {request.output}"]))
