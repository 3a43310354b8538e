"""An error that the user can mend: one line on stderr and exit code 2, never a traceback."""

from __future__ import annotations

from typing import IO, Any

import click


class Failure(click.ClickException):
    """Says in one line which file or option is at fault and what to do."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        click.echo(f"mha-lint: {self.format_message()}", file=file, err=file is None)
