"""``mha-lint inspect``: no rules, only what the attention sites are."""

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
    view_of,
    write_file,
    write_stdout,
)
from mha_lint.cli.request import CommandLine, make_request
from mha_lint.model.finding import Severity
from mha_lint.model.report import RunReport
from mha_lint.report import inspect as tables


@click.command()
@click.argument("target", shell_complete=completion.targets)
@options.how_to_call
@options.how_to_print("text", "json")
@options.time_limit
@options.in_what_process
@options.which_configuration
def inspect(target: str, **given: Any) -> None:
    """Show every attention site of a target: its sizes, scale, axis, mask, W_O and what it costs.

    \b
    Example:
        mha-lint inspect attention.py::MHA
        mha-lint inspect attention.py::MHA --build "MHA(64, 16)" --call "torch.randn(2, 10, 64)"

    Exit code: 0 if the target was inspected, 2 if it was not.
    """
    request = make_request((target,), CommandLine(**given), Path.cwd())
    if request.output is not None:
        require_writable(request.output)
    with engine_for(request.running) as engine:
        report: RunReport = engine.inspect(request.specs, request.settings)
    render = tables.render_json if request.format == "json" else tables.render
    cwd = Path(request.settings.cwd)
    if request.output is None:
        view = view_of(sys.stdout, cwd=cwd, verbose=request.verbose, quiet=request.quiet)
        write_stdout(render(report, view))
    else:
        write_file(request.output, render(report, file_view(cwd=cwd, verbose=request.verbose)))
    click.get_current_context().exit(report.exit_code(Severity.ERROR, exit_zero=True))
