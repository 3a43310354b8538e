"""``mha-lint merge``: one report of several."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mha_lint.cli import options
from mha_lint.cli.check import emit
from mha_lint.cli.failure import Failure
from mha_lint.cli.output import require_writable
from mha_lint.cli.request import CommandLine, make_request
from mha_lint.model.finding import Severity
from mha_lint.model.report import RunReport
from mha_lint.report.read_json import read_report
from mha_lint.runner.shards import merged


@click.command()
@click.argument(
    "reports", nargs=-1, required=True, metavar="REPORT...", type=click.Path(path_type=Path)
)
@click.option(
    "--fail-on",
    type=click.Choice([s.value for s in Severity]),
    help="The lowest level that makes the exit code 1. [default: warning]",
)
@click.option("--exit-zero", is_flag=True, default=None, help="Exit 0 even if there are findings.")
@click.option(
    "--strict", is_flag=True, default=None, help="Exit 2 if a rule is undecided anywhere."
)
@options.how_to_print("json", "text", "concise")
@options.which_configuration
def merge(reports: tuple[Path, ...], **given: Any) -> None:
    """Join the JSON reports of all shards of a run into the report of the run.

    A REPORT is what mha-lint check --shard I/N --format json wrote. Reports of whole runs are joined
    in the order in which they are named.

    \b
    Example:
        mha-lint check models/ --shard 1/2 --format json -o 1.json
        mha-lint check models/ --shard 2/2 --format json -o 2.json
        mha-lint merge 1.json 2.json -o report.json

    Exit code: as check's on the whole run; 2 also where a shard is missing or a report is not whole.
    """
    line = CommandLine(**given)
    request = make_request((".",), replace(line, format=line.format or "json"), Path.cwd())
    if line.output is None:  # that of the configuration is of check
        request = replace(request, output=None)
    if request.output is not None:
        require_writable(request.output)
    report = merged([(str(path), _read(path)) for path in reports])
    emit(report, request)
    # The user stopped a part, not this: what was not checked by then is listed as failed.
    code = replace(report, interrupted=False).exit_code(
        request.fail_on, exit_zero=request.exit_zero, strict=request.settings.strict
    )
    click.get_current_context().exit(code)


def _read(path: Path) -> RunReport:
    try:
        document = path.read_bytes()
    except OSError as error:
        raise Failure(f"{path}: cannot be read ({error.strerror or error})") from error
    return read_report(document, str(path))
