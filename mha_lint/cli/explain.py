"""``mha-lint explain``: a rule's own documentation."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mha_lint.cli.completion import rule_codes
from mha_lint.cli.failure import Failure
from mha_lint.cli.output import view_of, write_stdout
from mha_lint.report import explain as page
from mha_lint.rulebook.pack import builtin_pack, load_pack
from mha_lint.rulebook.select import nearest


@click.command()
@click.argument("code", shell_complete=rule_codes)
def explain(code: str) -> None:
    """Say what a rule means: what, why, bad, good, references.

    CODE is a rule's code or its name, or MHA001.

    \b
    Example:
        mha-lint explain MHA204
        mha-lint explain wrong-softmax-axis
    """
    rules = load_pack(builtin_pack())
    wanted = code.strip()
    view = view_of(sys.stdout, cwd=Path.cwd())
    if wanted.upper() == page.NOT_CHECKED or wanted.lower() == page.NOT_CHECKED_NAME:
        write_stdout(page.render_not_checked(view))
        return
    for loaded in rules:
        if wanted.upper() == loaded.code or wanted.lower() == loaded.name:
            write_stdout(page.render(loaded.documentation, view))
            return
    names = [r.code for r in rules] + [r.name for r in rules]
    raise Failure(f"no rule {code!r}; {nearest(wanted, names)}")
