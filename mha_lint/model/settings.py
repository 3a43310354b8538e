"""What the user asked of a run, after configuration file and command line are joined."""

from __future__ import annotations

from dataclasses import dataclass

from mha_lint.model.finding import Severity


class UsageError(Exception):
    """What the user asked for cannot be done; its text is one line that says what to change."""


@dataclass(frozen=True, slots=True)
class PerFileIgnore:
    """Rules that do not count in the files that a glob pattern matches.

    ``root``: the folder that a relative pattern starts from (that of the configuration file, else
    the working directory).
    """

    pattern: str
    codes: tuple[str, ...]
    root: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run, the same for all its targets.

    ``select``, ``ignore`` and ``extend_select`` hold rule codes, their prefixes ("MHA2") or "ALL".
    ``severity`` holds pairs of such a code and the level that its findings get.
    ``device`` ("cpu", "cuda" or "auto") and ``dtype`` are those of the cross-check; ``dtype`` None
    is float64, and for a module in half precision its own type. Facts are always measured in
    float64. ``timeout``: seconds that one target may take. ``cwd``: where the run was started; user
    code may change the process's own working directory.
    """

    cwd: str
    select: tuple[str, ...] = ("ALL",)
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    per_file_ignores: tuple[PerFileIgnore, ...] = ()
    severity: tuple[tuple[str, Severity], ...] = ()
    device: str = "cpu"
    dtype: str | None = None
    crosscheck: bool = True
    timeout: float = 60.0
    strict: bool = False
    verbose: bool = False
