"""``mha-lint rules``: all rules, as text, Markdown or JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mha_lint.cli.output import view_of, write_stdout
from mha_lint.report import rules_list
from mha_lint.rulebook.pack import builtin_pack, load_pack

_FORMATS = {
    "text": rules_list.render,
    "markdown": rules_list.render_markdown,
    "json": rules_list.render_json,
}


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(list(_FORMATS)),
    default="text",
    show_default=True,
    help="Form of the list.",
)
def rules(form: str) -> None:
    """List all rules.

    \b
    Example:
        mha-lint rules
        mha-lint rules --format markdown
    """
    docs = [loaded.documentation for loaded in load_pack(builtin_pack())]
    write_stdout(_FORMATS[form](docs, view_of(sys.stdout, cwd=Path.cwd())))
