"""Read the configuration: ``[tool.mha-lint]`` of a pyproject.toml, or of any TOML file.

Nothing is guessed and nothing ignored: an unknown key, a value of the wrong type or a file that is
no TOML is an error that names the file, the key and what would be right.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mha_lint.cli.toml_values import (
    ConfigurationError,
    Reader,
    Where,
    one_of,
    read_codes,
    read_count,
    read_expectations,
    read_flag,
    read_per_file_ignores,
    read_seconds,
    read_severities,
    read_severity,
    read_size,
    read_string,
    read_table,
    read_tables,
)
from mha_lint.model.dotted import is_deep
from mha_lint.model.finding import Severity
from mha_lint.model.printable import shown
from mha_lint.model.settings import PerFileIgnore
from mha_lint.model.target import TargetSpec
from mha_lint.report.formats import FORMATS
from mha_lint.targets.paths import is_file

DEVICES = ("cpu", "cuda", "auto")
DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a configuration file says; None where it says nothing."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    per_file_ignores: tuple[PerFileIgnore, ...] = ()
    severity: tuple[tuple[str, Severity], ...] = ()
    fail_on: Severity | None = None
    exit_zero: bool | None = None
    expect: tuple[str, ...] = ()
    format: str | None = None
    output: str | None = None
    device: str | None = None
    dtype: str | None = None
    no_crosscheck: bool | None = None
    strict: bool | None = None
    timeout: float | None = None
    jobs: int | None = None
    memory: int | None = None
    no_cache: bool | None = None
    no_isolation: bool | None = None
    executor: str | None = None
    verbose: bool | None = None
    quiet: bool | None = None
    target: tuple[TargetSpec, ...] = ()


def find_configuration(start: Path) -> Path | None:
    """Return the nearest pyproject.toml with a ``[tool.mha-lint]`` table, from `start` upward.

    Raises:
        ConfigurationError: a pyproject.toml on the way is no TOML.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if is_file(path) and _own_table(_parse(path)) is not None:
            return path
    return None


def read_configuration(path: Path, cwd: Path) -> Configuration:
    """Read the file at `path`; target paths are relative to its folder and become absolute.

    Raises:
        ConfigurationError: it cannot be read, or says something that is not understood.
    """
    own = _own_table(_parse(path))
    if own is None:
        raise ConfigurationError(f"{path}: has no [tool.mha-lint] table; add one or drop --config")
    where = Where(path, "[tool.mha-lint]")
    values: dict[str, Any] = _read(read_table(own, where), _KEYS, where)
    entries = enumerate(values.pop("target", []), start=1)
    values["target"] = tuple(_target(entry, number, path, cwd) for number, entry in entries)
    return Configuration(**{key.replace("-", "_"): value for key, value in values.items()})


def _parse(path: Path) -> dict[str, object]:
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may never end
            raise ConfigurationError(f"{path}: is no regular file; give --config a TOML file")
        text = path.read_text(encoding="utf-8-sig")
        if is_deep(text):
            raise RecursionError
        return tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:  # also of numbers and of nesting without end
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        hint = "mend it, or pass --isolated to go without"
        raise ConfigurationError(f"{path}: is not valid TOML ({why}); {hint}") from error


def _own_table(document: dict[str, object]) -> object:
    tool = document.get("tool")
    return tool.get("mha-lint") if isinstance(tool, dict) else None


def _read(
    table: Mapping[str, object], readers: Mapping[str, Reader], where: Where
) -> dict[str, object]:
    for key in table:
        if key in readers:
            continue
        near = difflib.get_close_matches(key, readers, n=2, cutoff=0.6)
        if readers is _KEYS and key in _TARGET_KEYS:
            hint = "it belongs into a [[tool.mha-lint.target]] table"
        elif near:
            hint = f"did you mean {' or '.join(near)}?"
        else:
            hint = f"known keys are {', '.join(sorted(readers))}"
        raise where.error(f"unknown key {shown(key)}; {hint}")
    return {key: readers[key](value, where.at(key)) for key, value in table.items()}


def _target(entry: object, number: int, path: Path, cwd: Path) -> TargetSpec:
    where = Where(path, f"[[tool.mha-lint.target]] number {number}")
    table: dict[str, Any] = _read(read_table(entry, where), _TARGET_KEYS, where)
    file, module, name = table.get("path"), table.get("module"), table.get("class")
    if (file is None) == (module is None):
        raise where.error("needs either path or module")
    if module is not None and name is None:
        raise where.error("module needs class as well: the name of a class or factory in it")
    if file is None:
        shown, absolute = f"{module}:{name}", None
    else:
        absolute = (path.parent / file).absolute()
        below = absolute.relative_to(cwd) if absolute.is_relative_to(cwd) else absolute
        shown = f"{below.as_posix()}::{name}" if name else below.as_posix()
    return TargetSpec(
        text=shown,
        path=None if absolute is None else str(absolute),
        module=module,
        qualname=name,
        build=table.get("build"),
        call=table.get("call"),
        expect=table.get("expect", ()),
    )


_KEYS: dict[str, Reader] = {
    "select": read_codes,
    "ignore": read_codes,
    "extend-select": read_codes,
    "per-file-ignores": read_per_file_ignores,
    "severity": read_severities,
    "fail-on": read_severity,
    "exit-zero": read_flag,
    "expect": read_expectations,
    "format": one_of(*FORMATS),
    "output": read_string,
    "device": one_of(*DEVICES),
    "dtype": one_of(*DTYPES),
    "no-crosscheck": read_flag,
    "strict": read_flag,
    "timeout": read_seconds,
    "jobs": read_count,
    "memory": read_size,
    "no-cache": read_flag,
    "no-isolation": read_flag,
    "executor": read_string,
    "verbose": read_flag,
    "quiet": read_flag,
    "target": read_tables,
}

_TARGET_KEYS: dict[str, Reader] = {
    "path": read_string,
    "module": read_string,
    "class": read_string,
    "build": read_string,
    "call": read_string,
    "expect": read_expectations,
}
