"""Options that several commands share, as decorators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from mha_lint.cli.completion import expectations, rule_codes
from mha_lint.cli.configuration import DEVICES, DTYPES
from mha_lint.cli.parameters import code_level, codes, expectation, pattern_codes, shard, size
from mha_lint.model.finding import Severity

F = TypeVar("F", bound=Callable[..., Any])

_CODES_HELP = "codes, prefixes as MHA2, or ALL"


def _all(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def how_to_call(command: F) -> F:
    """Add what says how a target is built, called and meant."""
    return _all(
        click.option(
            "--build",
            metavar="EXPR",
            help='How to make the module, as "MHA(64, 8)": Python in the target\'s own namespace.',
        ),
        click.option(
            "--call",
            metavar="ARGS",
            help='Arguments of one call, as "torch.randn(2, 10, 64), causal=True".',
        ),
        expected,
    )(command)


def expected(command: F) -> F:
    """Add what the code is meant to be."""
    return click.option(
        "--expect",
        type=expectation,
        shell_complete=expectations,
        metavar="WORD",
        multiple=True,
        help="What the code is meant to be: causal, cross, mask=keep, ... Repeatable.",
    )(command)


def which_rules(command: F) -> F:
    """Add the choice of rules and of what counts."""
    levels = click.Choice([s.value for s in Severity])
    return _all(
        click.option(
            "--select",
            type=codes,
            shell_complete=rule_codes,
            metavar="CODE,...",
            help=f"Run these rules only: {_CODES_HELP}.",
        ),
        click.option(
            "--ignore",
            type=codes,
            shell_complete=rule_codes,
            metavar="CODE,...",
            help=f"Do not run these rules: {_CODES_HELP}.",
        ),
        click.option(
            "--extend-select",
            type=codes,
            shell_complete=rule_codes,
            metavar="CODE,...",
            help="Run these rules as well.",
        ),
        click.option(
            "--per-file-ignores",
            type=pattern_codes,
            metavar="PATTERN:CODE,...",
            multiple=True,
            help='Rules that do not count in some files, as "tests/*.py:MHA2". Repeatable.',
        ),
        click.option(
            "--severity",
            type=code_level,
            metavar="CODE=LEVEL",
            multiple=True,
            help="Another level for a rule, as MHA201=note. Repeatable.",
        ),
        click.option(
            "--fail-on",
            type=levels,
            help="The lowest level that makes the exit code 1. [default: warning; of run: none]",
        ),
        click.option(
            "--exit-zero", is_flag=True, default=None, help="Exit 0 even if there are findings."
        ),
        click.option(
            "--strict", is_flag=True, default=None, help="Exit 2 if a rule is undecided anywhere."
        ),
    )(command)


def how_to_measure(command: F) -> F:
    """Add device, precision and time limit."""
    return _all(
        click.option(
            "--device", type=click.Choice(DEVICES), help="Where to cross-check. [default: cpu]"
        ),
        click.option(
            "--dtype",
            type=click.Choice(DTYPES),
            help="Precision of the cross-check. [default: float64, and a half-precision module's own]",
        ),
        click.option(
            "--no-crosscheck",
            is_flag=True,
            default=None,
            help="Leave out the numeric comparison with the reference attention.",
        ),
    )(command)


def time_limit(command: F) -> F:
    """Add the time limit."""
    return click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="Longest time for one target. [default: 60]",
    )(command)


def how_to_run(command: F) -> F:
    """Add processes, their limits, cache, shards and executors."""
    return _all(
        click.option(
            "--jobs",
            "-j",
            type=click.IntRange(min=1),
            metavar="N",
            help="Targets at a time, each in its own process. [default: one for each core]",
        ),
        click.option(
            "--no-cache",
            is_flag=True,
            default=None,
            help="Neither take reports on unchanged files from .mha_lint_cache nor keep them there.",
        ),
        click.option(
            "--shard",
            type=shard,
            metavar="I/N",
            help="Check the I-th of N parts only; mha-lint merge joins the reports.",
        ),
        click.option(
            "--executor",
            metavar="URL",
            help="Have the targets checked elsewhere: dask://HOST:PORT.",
        ),
        in_what_process,
    )(command)


def in_what_process(command: F) -> F:
    """Add memory and isolation."""
    return _all(
        click.option(
            "--memory",
            type=size,
            metavar="SIZE",
            help="Most memory of one target, as 4G. [default: half the machine's, at most 8G]",
        ),
        click.option(
            "--no-isolation",
            is_flag=True,
            default=None,
            help="Run user code in this process: to debug it. It can then do anything to the run.",
        ),
    )(command)


def which_configuration(command: F) -> F:
    """Add where the configuration comes from."""
    return _all(
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A TOML file with a [tool.mha-lint] table, instead of the nearest pyproject.toml.",
        ),
        click.option("--isolated", is_flag=True, help="Read no configuration file."),
    )(command)


def how_to_print(*formats: str) -> Callable[[F], F]:
    """Add the output options, with these `formats`; the first is the default."""
    return _all(
        click.option(
            "--format",
            type=click.Choice(formats),
            help=f"Form of the report. [default: {formats[0]}]",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Write the report to a file.",
        ),
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            default=None,
            help="Say more: calls, tracebacks, times.",
        ),
        click.option(
            "-q",
            "--quiet",
            is_flag=True,
            default=None,
            help="Say less: findings and failures only.",
        ),
    )
