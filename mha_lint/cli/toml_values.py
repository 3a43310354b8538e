"""Readers of single configuration values: each returns the value checked, or says what is due."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import click

from mha_lint.cli.parameters import size
from mha_lint.model.contract import EXPECTATIONS, unknown_expectation
from mha_lint.model.finding import Severity
from mha_lint.model.printable import printable, shown
from mha_lint.model.settings import PerFileIgnore, UsageError


class ConfigurationError(UsageError):
    """A configuration file that cannot be used; one line with the file, the key and the remedy."""

    def __init__(self, text: str) -> None:
        """Say it in one line, whatever the file holds."""
        super().__init__(printable(text))


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a configuration file, for errors."""

    path: Path
    key: str

    def at(self, key: str) -> Where:
        """Return the place of `key` below this one."""
        return replace(self, key=f"{self.key} {key if len(key) < 80 else shown(key)}")

    def error(self, text: str) -> ConfigurationError:
        """Return the error that says `text` of this place."""
        return ConfigurationError(f"{self.path}: {self.key}: {text}")


Reader: TypeAlias = Callable[[object, Where], object]


def read_table(value: object, where: Where) -> dict[str, object]:
    """Return a TOML table."""
    if not isinstance(value, dict):
        raise where.error(f"must be a table, not {shown(value)}")
    return value


def read_tables(value: object, where: Where) -> list[object]:
    """Return an array of tables, each yet to be read."""
    if not isinstance(value, list):
        raise where.error("must be written [[tool.mha-lint.target]], once for each target")
    return value


def read_string(value: object, where: Where) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise where.error(f"must be a string, not {shown(value)}")
    return value


def read_flag(value: object, where: Where) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise where.error(f"must be true or false, not {shown(value)}")
    return value


def read_seconds(value: object, where: Where) -> float:
    """Return a positive number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise where.error(f"must be a number of seconds above 0, not {shown(value)}")
    return float(value)


def read_count(value: object, where: Where) -> int:
    """Return a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
        raise where.error(f"must be a whole number above 0, not {shown(value)}")
    return value


def read_size(value: object, where: Where) -> int:
    """Return a number of bytes, given as one or as "8G"."""
    try:
        return size(str(value) if isinstance(value, str | int) else "")
    except (click.BadParameter, ValueError):  # str() of a number of thousands of digits
        raise where.error(f'must be a size as "8G" or "500M", not {shown(value)}') from None


def read_strings(value: object, where: Where) -> tuple[str, ...]:
    """Return a list of strings."""
    strings = value if isinstance(value, list) else [None]
    if not all(isinstance(item, str) for item in strings):
        raise where.error(f'must be a list of strings as ["a", "b"], not {shown(value)}')
    return tuple(strings)


def read_codes(value: object, where: Where) -> tuple[str, ...]:
    """Return a list of rule codes, prefixes or ALL, in capitals."""
    return tuple(code.strip().upper() for code in read_strings(value, where))


def read_expectations(value: object, where: Where) -> tuple[str, ...]:
    """Return a list of words of the contract."""
    words = read_strings(value, where)
    for word in words:
        if word not in EXPECTATIONS:
            raise where.error(unknown_expectation(word))
    return words


def read_severity(value: object, where: Where) -> Severity:
    """Return a level of severity."""
    return Severity(one_of(*(s.value for s in Severity))(value, where))


def read_severities(value: object, where: Where) -> tuple[tuple[str, Severity], ...]:
    """Return a table from rule codes to levels as pairs."""
    entries = read_table(value, where).items()
    return tuple((code.upper(), read_severity(v, where.at(code))) for code, v in entries)


def read_per_file_ignores(value: object, where: Where) -> tuple[PerFileIgnore, ...]:
    """Return a table from glob patterns to codes; patterns start from the file's own folder."""
    root = str(where.path.parent.absolute())
    return tuple(
        PerFileIgnore(pattern, read_codes(codes, where.at(pattern)), root)
        for pattern, codes in read_table(value, where).items()
    )


def one_of(*allowed: str) -> Callable[[object, Where], str]:
    """Return a reader that accepts the strings `allowed`."""

    def read(value: object, where: Where) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise where.error(f"must be one of {', '.join(allowed)}, not {shown(value)}")
        return value

    return read
