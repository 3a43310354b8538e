"""Reports that were made before, by all that they rest on.

An entry counts only where everything is as it was: the target's file, every other file of the user
that its code read or imported, the settings, mha-lint and its rules, torch, Python, the installed
packages. One that cannot be read, or that is not of the form it should have, is as good as none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import platform
import shutil
import sys
from functools import cache as once
from pathlib import Path

from mha_lint.model import wire
from mha_lint.model.target import TargetSpec
from mha_lint.model.whole_files import write_whole
from mha_lint.rulebook.pack import builtin_pack
from mha_lint.runner.jobs import FileRead, Outcome, Plan
from mha_lint.runner.reads import digest

FOLDER = ".mha_lint_cache"
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# See https://bford.info/cachedir/\n"


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """What a file of the cache holds; ``key`` guards against a foreign one."""

    key: str
    reads: tuple[FileRead, ...]
    outcome: Outcome


class Cache:
    """The reports kept in one folder for runs of one plan."""

    def __init__(self, folder: Path | None, plan: str = "") -> None:
        """Keep reports below `folder` (None: nowhere), for runs of which `plan` tells all."""
        self._folder = folder
        self._plan = plan
        self.empty = folder is None or not folder.is_dir()

    @classmethod
    def of(cls, plan: Plan) -> Cache:
        """Return the cache of the working directory for `plan`."""
        shown = dataclasses.replace(plan.settings, verbose=False, strict=False)
        told = wire.dump(dataclasses.replace(plan, settings=shown))
        return cls(Path(plan.settings.cwd, FOLDER), _hash(told.decode(), _surroundings()))

    def get(self, spec: TargetSpec, content: str) -> Outcome | None:
        """Return what was found of `spec` when its file had this `content` (a SHA-256)."""
        if self.empty or self._folder is None or not content:
            return None
        key = self._key(spec, content)
        try:
            entry = wire.load(_Entry, self._place(key).read_bytes())
        except (OSError, wire.WireError):
            return None
        if entry.key != key or entry.outcome.report.target != spec.text:
            return None
        if any(digest(read.path) != read.digest for read in entry.reads):
            return None
        return dataclasses.replace(entry.outcome, reads=entry.reads)

    def put(self, spec: TargetSpec, content: str, outcome: Outcome) -> None:
        """Keep `outcome` if it lasts; where that cannot be written, nothing is kept."""
        if self._folder is None or not content or not outcome.lasting:
            return
        key = self._key(spec, content)
        entry = _Entry(key, outcome.reads, dataclasses.replace(outcome, reads=()))
        with contextlib.suppress(OSError):
            place = self._place(key)
            self._prepare(place.parent)
            write_whole(place, wire.dump(entry))

    def _prepare(self, folder: Path) -> None:
        assert self._folder is not None
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._folder / ".gitignore", b"*\n")
            write_whole(self._folder / "CACHEDIR.TAG", _TAG.encode())
        folder.mkdir(exist_ok=True)

    def _place(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / key[:2] / f"{key[2:]}.json"

    def _key(self, spec: TargetSpec, content: str) -> str:
        return _hash(self._plan, wire.dump(spec).decode(), content)


def no_cache() -> Cache:
    """Return a cache that keeps nothing."""
    return Cache(None)


def empty_caches(below: Path) -> list[Path]:
    """Remove the cache of `below` and of every folder in it; return those that there were."""
    found: list[Path] = []
    for here, folders, _ in os.walk(below):
        if FOLDER in folders:
            folders.remove(FOLDER)
            place = Path(here, FOLDER)
            if (place / "CACHEDIR.TAG").is_file():
                shutil.rmtree(place, ignore_errors=True)
                found.append(place)
        folders[:] = [f for f in folders if f != ".git" and not Path(here, f).is_symlink()]
    return found


@once
def _surroundings() -> str:
    """Return a hash of what every report rests on: our own code and rules, Python, all packages."""
    own = Path(__file__).parents[1]
    parts = [sys.version, platform.machine(), *_packages()]
    for root in (own, builtin_pack()):
        for here, folders, files in os.walk(root):
            folders.sort()
            parts += [
                f"{name}:{s.st_size}:{s.st_mtime_ns}"
                for name in sorted(files)
                if name.endswith((".py", ".json"))
                for s in [Path(here, name).stat()]
            ]
    return _hash(*parts)


def _packages() -> list[str]:
    """Return the installed distributions with their versions, as their folders are called."""
    found = []
    for place in dict.fromkeys(sys.path):
        with contextlib.suppress(OSError):
            found += sorted(
                f"{name}:{Path(place, name).stat().st_mtime_ns}"
                for name in os.listdir(place or ".")  # noqa: PTH208 - "" is the current folder
                if name.endswith((".dist-info", ".egg-info", ".egg-link", ".pth"))
            )
    return found


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
