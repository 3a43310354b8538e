"""Join command line and configuration into what one run is asked to do.

The command line goes first. ``--select`` replaces the configured choice of rules as a whole;
``--ignore``, ``--extend-select``, ``--per-file-ignores`` and ``--severity`` add to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import click

from mha_lint.cli.configuration import Configuration, find_configuration, read_configuration
from mha_lint.model.finding import Severity
from mha_lint.model.report import NotChecked
from mha_lint.model.settings import PerFileIgnore, Running, Settings
from mha_lint.model.target import TargetSpec
from mha_lint.targets.resolve import parse_target


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The options as given; None or empty where they were not."""

    build: str | None = None
    call: str | None = None
    expect: tuple[str, ...] = ()
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] | None = None
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    severity: tuple[tuple[str, Severity], ...] = ()
    fail_on: str | None = None
    exit_zero: bool | None = None
    strict: bool | None = None
    device: str | None = None
    dtype: str | None = None
    no_crosscheck: bool | None = None
    timeout: float | None = None
    jobs: int | None = None
    memory: int | None = None
    no_isolation: bool | None = None
    no_cache: bool | None = None
    shard: tuple[int, int] | None = None
    executor: str | None = None
    config: Path | None = None
    isolated: bool = False
    format: str | None = None
    output: Path | None = None
    verbose: bool | None = None
    quiet: bool | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One run: what to check, how, and what to do with the report."""

    specs: tuple[TargetSpec | NotChecked, ...]
    settings: Settings
    fail_on: Severity
    exit_zero: bool
    format: str
    output: Path | None
    verbose: bool
    quiet: bool
    running: Running


def make_request(targets: tuple[str, ...], line: CommandLine, cwd: Path) -> Request:
    """Return the request of a command line.

    Raises:
        click.UsageError: options that exclude each other.
        UsageError: a configuration or a target that cannot be used.
    """
    if line.quiet and line.verbose:
        raise click.UsageError("-q and -v exclude each other")
    config = _configuration(line, cwd)
    quiet = bool(line.quiet or (config.quiet and not line.verbose))
    verbose = bool(line.verbose or (config.verbose and not quiet))
    output = line.output or (None if config.output is None else cwd / config.output)
    return Request(
        specs=_specs(targets, line, config, cwd),
        settings=_settings(line, config, cwd, verbose=verbose),
        fail_on=Severity(line.fail_on) if line.fail_on else config.fail_on or Severity.WARNING,
        exit_zero=bool(_first(line.exit_zero, config.exit_zero)),
        format=line.format or config.format or "text",
        output=None if output == Path("-") else output,
        verbose=verbose,
        quiet=quiet,
        running=Running(
            jobs=line.jobs or config.jobs,
            memory=line.memory or config.memory,
            isolation=not _first(line.no_isolation, config.no_isolation),
            cache=not _first(line.no_cache, config.no_cache),
            shard=line.shard,
            executor=line.executor or config.executor,
        ),
    )


def _configuration(line: CommandLine, cwd: Path) -> Configuration:
    if line.isolated:
        if line.config is not None:
            raise click.UsageError("--config and --isolated exclude each other")
        return Configuration()
    path = line.config or find_configuration(cwd)
    return Configuration() if path is None else read_configuration(path, cwd)


def _settings(line: CommandLine, config: Configuration, cwd: Path, *, verbose: bool) -> Settings:
    own = tuple(PerFileIgnore(p, codes, str(cwd)) for p, codes in line.per_file_ignores)
    select, ignore, extend = config.select, config.ignore, config.extend_select
    if line.select is not None:
        select, ignore, extend = line.select, (), ()
    defaults = Settings(str(cwd))
    return Settings(
        cwd=str(cwd),
        select=defaults.select if select is None else select,
        ignore=ignore + (line.ignore or ()),
        extend_select=extend + (line.extend_select or ()),
        per_file_ignores=config.per_file_ignores + own,
        severity=config.severity + line.severity,
        device=line.device or config.device or defaults.device,
        dtype=line.dtype or config.dtype or defaults.dtype,
        crosscheck=not _first(line.no_crosscheck, config.no_crosscheck),
        timeout=line.timeout or config.timeout or defaults.timeout,
        strict=bool(_first(line.strict, config.strict)),
        verbose=verbose,
    )


def _specs(
    targets: tuple[str, ...], line: CommandLine, config: Configuration, cwd: Path
) -> tuple[TargetSpec | NotChecked, ...]:
    specs = _named(targets, config, cwd)
    if (line.build is not None or line.call is not None) and len(targets) != 1:
        raise click.UsageError(
            "--build and --call need exactly one TARGET; for several, give each its own "
            "[[tool.mha-lint.target]] table"
        )
    return tuple(
        replace(
            spec,
            build=line.build or spec.build,
            call=line.call or spec.call,
            expect=line.expect or spec.expect or config.expect,
        )
        if isinstance(spec, TargetSpec)
        else spec
        for spec in specs
    )


def _named(
    targets: tuple[str, ...], config: Configuration, cwd: Path
) -> list[TargetSpec | NotChecked]:
    """Return what the user named, else the configured targets, else the current folder.

    A class named on the command line is built as its configured table says.
    """
    if not targets and config.target:
        return list(config.target)
    tables = {(t.path, t.qualname): t for t in config.target}
    specs: list[TargetSpec | NotChecked] = []
    for text in targets or (".",):
        spec = parse_target(text, cwd=str(cwd))
        if isinstance(spec, TargetSpec) and spec.qualname is not None:
            key = (spec.path and str(cwd / spec.path), spec.qualname)
            spec = replace(tables[key], text=spec.text) if key in tables else spec
        specs.append(spec)
    return specs


def _first(own: bool | None, configured: bool | None) -> bool | None:
    return configured if own is None else own
