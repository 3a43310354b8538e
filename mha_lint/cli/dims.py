"""``mha-lint dims``: head sizes of a config or a checkpoint, without building the model."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mha_lint.cli.failure import Failure
from mha_lint.cli.output import view_of, write_stdout
from mha_lint.dims import report_json, report_text
from mha_lint.dims.data import SourceError
from mha_lint.dims.diagnose import diagnose


@click.command()
@click.argument(
    "sources", metavar="SOURCE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the diagnosis.",
)
@click.option("-v", "--verbose", is_flag=True, help="List every file that was read.")
@click.option("-q", "--quiet", is_flag=True, help="Print no files and no notes.")
def dims(sources: tuple[Path, ...], form: str, verbose: bool, quiet: bool) -> None:
    """Say which head sizes a config and a checkpoint give, and which of them contradict.

    SOURCE is a config.json or params.json, a .safetensors file (only its header is read), an index
    of shards, a state_dict saved by torch (.pt, .pth, .bin; nothing but tensors is unpickled), or a
    folder of these. Several sources are compared with one another.

    \b
    Example:
        mha-lint dims config.json
        mha-lint dims config.json model.safetensors
        mha-lint dims checkpoints/llama/ --format json

    Exit code: 0 if all is consistent, 1 if something is contradictory, 2 if a source could not be
    read or holds no attention.
    """
    try:
        report = diagnose(sources)
    except SourceError as error:
        raise Failure(str(error)) from error
    if form == "json":
        write_stdout(report_json.render(report))
    else:
        view = view_of(sys.stdout, cwd=Path.cwd(), verbose=verbose, quiet=quiet)
        write_stdout(report_text.render(report, view))
    click.get_current_context().exit(report.exit_code)
