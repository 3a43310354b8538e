"""The help tells of all commands, in their own words, and imports none of them."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from mha_lint.cli.commands import COMMANDS
from mha_lint.cli.main import cli


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.help is not None
    first = " ".join(command.help.split("\n\n")[0].split())
    assert COMMANDS[name][1] == first


def test_a_name_that_is_none_is_refused() -> None:
    assert cli.get_command(click.Context(cli), "chekc") is None


def test_help_imports_no_command_and_no_torch() -> None:
    code = (
        "import sys; from mha_lint.cli.main import run; run(['--help']);"
        "print([m for m in sys.modules if m in ('torch', 'rich', 'mha_lint.cli.check', 'tomllib')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert "check    Build each target, run it once and judge the attention in it." in done.stdout
