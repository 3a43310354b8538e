"""``mha-lint clean``: empty the cache."""

from __future__ import annotations

from pathlib import Path

import click

from mha_lint.cli.output import say
from mha_lint.runner.cache import empty_caches


@click.command()
@click.argument(
    "folder", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
def clean(folder: Path) -> None:
    """Remove the reports that runs have kept.

    They lie in .mha_lint_cache of the folders that runs were started in; all below FOLDER (the
    current one, if none is named) are removed.

    \b
    Example:
        mha-lint clean
    """
    found = empty_caches(folder)
    for place in found:
        say(f"removed {place}")
    if not found:
        say(f"nothing to remove below {folder}")
