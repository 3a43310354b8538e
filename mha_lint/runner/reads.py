"""Which files of the user a worker read: what its report rests on."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

from mha_lint.rulebook.pack import builtin_pack
from mha_lint.runner.jobs import FileRead

_SYSTEM = ("/proc/", "/sys/", "/dev/")
_TICK = 10_000_000
"""ns by which the clock of a file system may lag behind."""
MOST = 2000
"""Files, above which a report is not kept: to look at them all again takes as long."""


class Reads:
    """Notes every file that this process opens for reading, from `watch` on."""

    def __init__(self, scratch: str) -> None:
        """Leave out what lies below `scratch`, which is made anew for each target."""
        paths = sysconfig.get_paths()
        installed = {paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")}
        installed |= {os.path.realpath(p) for p in installed}
        own = (str(Path(__file__).parents[1]), str(builtin_pack()))
        self._beside = (*_SYSTEM, *(f"{p}{os.sep}" for p in (*installed, *own, scratch)))
        self._seen: set[str] = set()
        self._loaded = set(sys.modules)
        self._began = time.time_ns() - _TICK
        self._on = False

    def watch(self) -> None:
        """Begin: this cannot be undone, and ends with the process."""
        self._on = True
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not self._on:
            return
        path, _, flags = arguments
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        written = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        if isinstance(path, str) and not written:
            self._seen.add(os.path.join(_cwd(), path))  # noqa: PTH118 - called for every open

    def result(self) -> tuple[FileRead, ...] | None:
        """Return the files of the user that were read or are imported.

        None: too many, or one was changed since, so that what it holds now may not be what was read.
        """
        self._on = False
        new = [m for name, m in list(sys.modules.items()) if name not in self._loaded]
        loaded = {str(getattr(m, "__file__", None) or "") for m in new}
        seen = {_source(p) for p in self._seen | loaded}
        files = {p for p in seen if p and not p.startswith(self._beside)}
        folders = {f"{os.path.dirname(p)}{os.sep}" for p in files}  # noqa: PTH120
        found = sorted(files | folders)
        if len(found) > MOST or any(_changed(p) > self._began for p in files):
            return None
        return tuple(FileRead(p, digest(p)) for p in found)


def digest(path: str) -> str:
    """Return the SHA-256 of a file's content, "" for what cannot be read.

    Of a folder (its path ends in a separator), that of the names in it that could be imported.
    """
    try:
        if path.endswith(os.sep):
            with os.scandir(path) as entries:
                names = sorted(e.name for e in entries if _importable(e))
            return hashlib.sha256("\0".join(names).encode(errors="surrogatepass")).hexdigest()
        if not os.path.isfile(path):  # noqa: PTH113 - a pipe would wait for a writer
            return ""
        with open(path, "rb") as handle:  # noqa: PTH123
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except (OSError, ValueError):
        return ""


def _changed(path: str) -> int:
    """Return when a file was last written, renamed or replaced, in ns; 0 if there is none."""
    try:
        return os.stat(path).st_ctime_ns  # noqa: PTH116 - a path of the user's, as it was opened
    except (OSError, ValueError):
        return 0


def _importable(entry: os.DirEntry[str]) -> bool:
    if entry.name.endswith(".py"):
        return True
    return entry.name.isidentifier() and entry.name != "__pycache__" and entry.is_dir()


def _source(path: str) -> str:
    """Return the source that a compiled file was made of."""
    folder, name = os.path.split(path)
    if os.path.basename(folder) == "__pycache__" and name.endswith(".pyc"):  # noqa: PTH119
        return os.path.join(os.path.dirname(folder), f"{name.partition('.')[0]}.py")  # noqa: PTH118, PTH120
    return path


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""
