"""One attempt to load a target: what it may do, and what it has done."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from mha_lint.model.speakable import speakable
from mha_lint.targets.stubs import StubState

INSTALLED = ("site-packages", "dist-packages")


class Session:
    """What one attempt to load a target may do, and what it has done.

    ``roots``: folders to search for top-level modules. ``stub_missing``: replace packages that are
    not installed. ``deep``: also those that installed packages lack. ``tolerant``: go on when an
    import fails. ``filter_all``: run definitions only, even of modules that look harmless.
    ``wanted``: names that the target needs of its file. ``own``: the top-level name of the target's
    own package.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        stub_missing: bool = False,
        deep: bool = False,
        tolerant: bool = False,
        filter_all: bool = False,
        wanted: frozenset[str] = frozenset(),
        own: str = "",
    ) -> None:
        """Begin with nothing loaded."""
        self.roots = tuple(roots)
        self.own = own
        self.stub_missing = stub_missing
        self.deep = deep
        self.tolerant = tolerant
        self.filter_all = filter_all
        self.wanted = wanted
        self.notes: list[str] = []
        self.modules: dict[str, ModuleType] = {}
        self.tainted: set[str] = set()
        """Installed packages that were loaded with stand-ins: nobody else must see them."""
        self.apart: dict[str, ModuleType] = {}
        """The modules of those."""
        self.failed: dict[str, BaseException] = {}
        self.state = StubState()
        self.default_dtype: torch.dtype | None = None
        """What the module set it to."""
        self.owns: dict[str, bool] = {}
        """Whether one of the roots holds a module of this name, where that was asked."""
        self.finders: list[Any] = []
        """The first goes before all other finders, the rest after them."""

    def roots_of(self, name: str) -> tuple[Path, ...]:
        """Return the folders in which a top-level module called `name` counts as the user's.

        Where packages are installed, side by side, only the target's own one does.
        """
        if name == self.own:
            return self.roots
        return tuple(root for root in self.roots if root.name not in INSTALLED)

    def install(self) -> None:
        """Put the finders into ``sys.meta_path`` (the guard takes them out again)."""
        sys.meta_path.insert(0, self.finders[0])
        sys.meta_path.extend(self.finders[1:])

    def adopt(self, name: str, module: ModuleType) -> None:
        """Register `module` as the user's, in ``sys.modules`` too."""
        self.modules[name] = module
        sys.modules[name] = module

    def note(self, text: str) -> None:
        """Keep a sentence for the report, once."""
        if text not in self.notes:
            self.notes.append(text)


def is_interrupt(error: BaseException) -> bool:
    """Tell whether `error` is a Ctrl-C of the person who runs mha-lint, not of the user's code."""
    if not issubclass(type(error), KeyboardInterrupt):  # isinstance would ask the error itself
        return False
    steps = traceback.extract_tb(error.__traceback__)
    return not (steps and (steps[-1].line or "").lstrip().startswith("raise"))


def describe(error: BaseException) -> str:
    """Return ``Type: first line of the message``, short."""
    error = speakable(error)
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    name = type(error).__name__
    return f"{name}: {text[:200]}" if text else name
