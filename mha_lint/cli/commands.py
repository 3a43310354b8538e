"""The commands by name; each is imported when it is run, so that none waits for another's needs."""

from __future__ import annotations

import importlib

import click

COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("check", "Build each target, run it once and judge the attention in it."),
    "inspect": (
        "inspect",
        "Show every attention site of a target: its sizes, scale, axis, mask, W_O and what it costs.",
    ),
    "dims": (
        "dims",
        "Say which head sizes a config and a checkpoint give, and which of them contradict.",
    ),
    "run": ("run", "Run a program and check every attention module or function that it calls."),
    "merge": ("merge", "Join the JSON reports of all shards of a run into the report of the run."),
    "explain": ("explain", "Say what a rule means: what, why, bad, good, references."),
    "rules": ("rules", "List all rules."),
    "clean": ("clean", "Remove the reports that runs have kept."),
}
"""Each command's module in this package and what it does, the first sentence of its own help."""


class Commands(click.Group):
    """A group whose help tells of all commands and imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of their use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mha_lint.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command does."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
