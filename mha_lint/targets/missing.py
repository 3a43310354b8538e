"""Replace packages that are not installed, where the user's file needs them to load."""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType

from mha_lint.targets.session import Session
from mha_lint.targets.source import SourceError, cached_source
from mha_lint.targets.stubs import StubModule

_OURS = frozenset({"torch", "numpy", "mha_lint"}) | sys.stdlib_module_names
"""What lacks a package on purpose."""

_UTIL = (importlib.util.__file__, "<frozen importlib.util>")


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Replaces packages that nothing else found, where the user's file needs them to load."""

    def __init__(self, session: Session) -> None:
        """Serve `session`."""
        self.session = session

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a stand-in, or None where the import is optional anyway."""
        parent, _, _ = fullname.rpartition(".")
        if parent:
            if not isinstance(sys.modules.get(parent), StubModule):
                return None
        elif not self.session.stub_missing or not _needed_by_user(self.session):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Make the stand-in."""
        return StubModule(spec.name, self.session.state)

    def exec_module(self, module: ModuleType) -> None:
        """Register the stand-in; there is nothing to run."""
        name = module.__name__
        self.session.modules[name] = module
        if "." not in name:
            self.session.state.stubbed.append(name)
            self.session.note(f"{name} is not installed: replaced by a stand-in")


def _needed_by_user(session: Session) -> bool:
    """Tell whether the running import stands in a user's file and not in a guarded ``try``.

    Or, where the session asks for that, in an installed package that a user's file imports.
    """
    frame: FrameType | None = sys._getframe(1)
    around: set[str] = set()
    while frame is not None:
        name = frame.f_code.co_filename
        if name in _UTIL and frame.f_code.co_name == "find_spec":
            return False  # somebody asks whether it is there
        if not name.startswith("<frozen importlib") and name not in (__file__, importlib.__file__):
            if _is_guarded(frame):
                return False
            owner = frame.f_globals.get("__name__")
            if owner in session.modules:
                session.tainted |= around
                return True
            package = str(owner).partition(".")[0]
            if not session.deep or not session.state.loading or package in _OURS:
                return False
            around.add(package)
        frame = frame.f_back
    return False


def _is_guarded(frame: FrameType) -> bool:
    """Tell whether what `frame` runs stands in a ``try`` that catches failed imports."""
    try:
        tree = cached_source(frame.f_code.co_filename).tree
    except SourceError:
        return False
    return any(
        isinstance(node, ast.Try)
        and node.body[0].lineno <= frame.f_lineno <= (node.body[-1].end_lineno or 0)
        and any(map(_catches_import_error, node.handlers))
        for node in ast.walk(tree)
    )


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(caught & {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
