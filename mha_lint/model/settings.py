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


@dataclass(frozen=True, slots=True)
class Running:
    """How the targets of a run are run; none of it changes what is found.

    ``jobs``: processes at a time (None: one for each usable core). ``memory``: bytes that one target
    may take (None: half the machine's, at most 8 GiB). ``isolation``: whether each target has a
    process of its own. ``cache``: whether reports on unchanged files are taken from, and kept in,
    ``.mha_lint_cache``. ``shard``: (I, N), the I-th of N parts, from 1. ``executor``: the URL of an
    engine that runs the targets.
    """

    jobs: int | None = None
    memory: int | None = None
    isolation: bool = True
    cache: bool = True
    shard: tuple[int, int] | None = None
    executor: str | None = None
