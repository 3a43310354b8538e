"""Tell when a module has been imported, without importing it."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any


class Arrival(MetaPathFinder):
    """While it is installed, calls `then` once, right after `name` was imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        """Wait for `name`."""
        self._name = name
        self._then = then

    def install(self) -> None:
        """Call `then` now if `name` is there already, else when it comes."""
        if self._name in sys.modules:
            self._then()
        else:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Wait no longer."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return what the other finders find for `name`, with a loader that tells us."""
        if fullname != self._name:
            return None
        self.remove()
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = (
                None if find is None else find(fullname, path, target)
            )
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Telling(spec.loader, self._then)
                return spec
        return None


class _Telling(Loader):
    """A loader that does as another one does, and tells when it is done."""

    def __init__(self, inner: Any, then: Callable[[], None]) -> None:
        self._inner = inner
        self._then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._inner.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._then()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
