"""The files of one scan: what a glance at each tells, and what was found in those that were read.

A class holds attention also where it makes one that another file of the project defines, which may
do the same, `DEEPEST` files deep. So a file is worth parsing if its own words can be attention, or
if it takes a class from a file that is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from mha_lint.targets.glance import Glance, decoded, glance
from mha_lint.targets.imports import Modules
from mha_lint.targets.notebooks.read import cell_texts

NOTEBOOK = ".ipynb"
DEEPEST = 3
"""Files that are followed from import to import."""
LAST = 64
"""Parsed files that are kept: trees are large."""
Kept = TypeVar("Kept")


class Project:
    """What is known of the files of a project while one scan of it lasts."""

    def __init__(self) -> None:
        """Know of no file yet."""
        self.modules = Modules()
        self.found: dict[tuple[str, int], frozenset[str]] = {}
        """File, and how many imports lead to it -> its classes that can hold attention."""
        self._kept: dict[str, object] = {}
        self._glances: dict[str, Glance | None] = {}
        self._may_hold: dict[tuple[str, int], bool] = {}

    def may_hold(self, path: str, depth: int = 0) -> bool:
        """Tell whether a scan of the file at `path`, `depth` imports deep, can find anything.

        What cannot be read as text may hold everything. A syntax error is no matter here: where no
        word of attention stands, none can be hidden behind one.
        """
        key = (path, depth)
        if key not in self._may_hold:
            seen = self._glance(path)
            self._may_hold[key] = (
                seen is None or seen.computes or self._takes_attention(path, seen, depth)
            )
        return self._may_hold[key]

    def kept(self, path: str, make: Callable[[], Kept]) -> Kept:
        """Return what `make` made of the file at `path`; that of the last few files is kept."""
        made = self._kept.pop(path, None)
        if made is None:
            made = make()
        self._kept[path] = made
        if len(self._kept) > LAST:
            del self._kept[next(iter(self._kept))]
        return cast("Kept", made)

    def _takes_attention(self, path: str, seen: Glance, depth: int) -> bool:
        if depth >= DEEPEST or not seen.imported:
            return False
        folder = str(Path(path).absolute().parent)
        for taken in seen.imported:
            file = self.modules.find(taken.module, taken.level, folder)
            if file is None:
                continue
            other = self._glance(file)
            if (
                other is not None
                and not other.classes.isdisjoint(taken.names)
                and self.may_hold(file, depth + 1)
            ):
                return True
        return False

    def _glance(self, path: str) -> Glance | None:
        """Return what the words of a file tell; None if it has to be read to tell what it is."""
        if path not in self._glances:
            self._glances[path] = _look(path)
        return self._glances[path]


def _look(path: str) -> Glance | None:
    file = Path(path)
    try:
        if not file.is_file():
            return None
        data = file.read_bytes()
    except (OSError, ValueError):
        return None
    if not path.endswith(NOTEBOOK):
        text = decoded(data)
        return None if text is None else glance(text)
    cells = cell_texts(data)
    return None if cells is None else glance("\n".join(cells), python=False)
