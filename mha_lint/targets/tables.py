"""The tables that imports go by: how they are, how they were, and who must know of a difference."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

_LISTS = ("path", "argv", "meta_path", "path_hooks")
_FEW = 3
_listeners: list[list[str]] = []


@contextmanager
def disturbances(told: list[str]) -> Iterator[None]:
    """Have `told` take what user code did to the table of modules while the block ran."""
    _listeners.append(told)
    try:
        yield
    finally:
        _listeners.remove(told)


def tell(names: list[str]) -> None:
    """Say that user code changed or removed `names`."""
    for told in _listeners[-1:]:
        told += [name for name in names if name not in told]


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists of ``sys`` that user code adds to, and may put others in the place of."""

    held: tuple[tuple[str, list[Any], list[Any]], ...]

    @classmethod
    def now(cls) -> Lists:
        """Return them as they are; what is no list is left alone."""
        found = ((name, getattr(sys, name, None)) for name in _LISTS)
        return cls(tuple((n, value, list(value)) for n, value in found if isinstance(value, list)))

    def put_back(self) -> None:
        """Make them what they were, and tell of those that were lists no more."""
        lost = []
        for name, value, content in self.held:
            if not isinstance(getattr(sys, name, None), list):
                lost.append(f"sys.{name}")
            value[:] = content
            setattr(sys, name, value)
        tell(lost)


@dataclass(frozen=True, slots=True)
class Modules:
    """The table of modules and what it held."""

    table: dict[str, ModuleType]
    held: dict[str, ModuleType]

    @classmethod
    def now(cls) -> Modules:
        """Return the table as it is."""
        return cls(sys.modules, dict(sys.modules))

    def reinstate(self) -> list[str]:
        """Have ``sys.modules`` be this very table again; return its name where it was not."""
        if getattr(sys, "modules", None) is self.table:
            return []
        sys.modules = self.table
        return ["sys.modules"]

    def put_back(self, own: Container[str] = ()) -> list[str]:
        """Make the table hold again what it held; return what was changed, in a few words.

        `own`: names that may have been changed.
        """
        replaced, table = self.reinstate(), self.table
        lost = [name for name, module in self.held.items() if table.get(name) is not module]
        for name in lost:
            table[name] = self.held[name]
        lost = [name for name in lost if name not in own]
        if len(lost) > _FEW:
            return [*replaced, "entries of sys.modules"]
        return replaced + [f"the module {name}" for name in lost]
