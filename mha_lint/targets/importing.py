"""Finders and loaders for the user's own files while a target is loaded.

The user's modules are found next to the target and up its folders, packages run their
``__init__`` only when something asks for a name in it, scripts run their definitions only, and
packages that are not installed are replaced by stand-ins.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from mha_lint.targets.missing import StubFinder
from mha_lint.targets.session import Session, describe
from mha_lint.targets.source import Source, SourceError, read_source
from mha_lint.targets.stubs import Missing
from mha_lint.targets.toplevel import definitions_only, making, setting, works_at_top_level

PROTECTED = frozenset({"torch", "numpy", "mha_lint", "pytest", "_pytest"})
"""Installed packages that a file of the user never shadows."""


class LazyPackage(ModuleType):
    """A package of the user whose ``__init__`` runs when a name in it is first asked for."""

    def __init__(self, name: str, folder: Path, session: Session) -> None:
        """Stand for the package in `folder`."""
        super().__init__(name)
        self.__path__ = [str(folder)]
        self.__package__ = name
        self._mha_lint_init = (folder / "__init__.py", session)
        self._mha_lint_pending: tuple[Path, Session] | None = self._mha_lint_init
        self._mha_lint_tried: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        """Import the submodule of that name, else run ``__init__`` and look again."""
        pending = self.__dict__.get("_mha_lint_pending")
        dunder = name.startswith("__") and name != "__all__"  # __all__: a star import asks for it
        if not dunder and pending is not None:
            try:  # a submodule of that name is meant more often than something in __init__
                return importlib.import_module(f"{self.__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{self.__name__}.{name}":
                    raise
            init, session = pending
            try:
                self.fill()
            except Exception as error:
                session.note(f"{init.name} of package {self.__name__} failed: {describe(error)}")
        if name not in self.__dict__:
            self._make(name)
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def _make(self, name: str) -> None:
        """Run of ``__init__`` what sets `name`, where all of it did not run, or not yet."""
        init, session = self._mha_lint_init
        if name in self._mha_lint_tried or not init.is_file():
            return
        self._mha_lint_tried.add(name)
        try:
            source = read_source(str(init))
        except SourceError:
            return
        for statement in setting(source.tree, name):
            code = compile(ast.Module([statement], []), source.path, "exec", dont_inherit=True)
            try:
                exec(code, self.__dict__)
            except Exception as error:
                session.note(f"{name} of package {self.__name__} failed: {describe(error)}")
                return

    def fill(self) -> None:
        """Run ``__init__``, unless it ran already; whatever it raises is passed on."""
        pending = self._mha_lint_pending
        self._mha_lint_pending = None
        if pending is not None and pending[0].is_file():
            init, session = pending
            self.__file__ = str(init)
            UserLoader(self.__name__, init, session).exec_module(self)


def fill_packages(session: Session) -> bool:
    """Run what ``__init__`` files did not run yet, innermost first, and tell whether any was left.

    Importing a module runs those of its packages, and what they import may enter itself into a table.
    """
    left = [
        module
        for name, module in sorted(session.modules.items(), key=lambda item: -item[0].count("."))
        if isinstance(module, LazyPackage) and module._mha_lint_pending is not None
    ]
    for package in left:
        try:
            package.fill()
        except Exception as error:
            session.note(f"__init__.py of package {package.__name__} failed: {describe(error)}")
    return bool(left)


class UserLoader(importlib.abc.Loader):
    """Runs a file of the user: all of it when that only defines things, else its definitions."""

    def __init__(
        self, name: str, path: Path, session: Session, source: Source | None = None
    ) -> None:
        """Load the file at `path` as the module `name`; `source`: what was read of it already."""
        self.name, self.path, self.session, self.source = name, path, session, source

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Make a plain module, or a lazy one for a package."""
        if self.path.name == "__init__.py":
            return LazyPackage(spec.name, self.path.parent, self.session)
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run the file in `module`."""
        self.session.modules[self.name] = module
        if isinstance(module, LazyPackage) and module._mha_lint_pending is not None:
            return
        try:
            source = read_source(str(self.path))
        except SourceError as error:
            raise ImportError(error.reason) from None
        if self.source is not None and self.source.notebook is not None:
            source = dataclasses.replace(source, tree=self.source.tree)
            _offer_notebook_names(module, self.session)
        session = self.session
        filtered = session.filter_all or session.tolerant or works_at_top_level(source.tree)
        whole = None if filtered else self._whole(source)
        if whole is None:
            self._run_definitions(source, module)
        else:
            exec(whole, module.__dict__)

    def get_source(self, _fullname: str) -> str:
        """Return the file's text, for tracebacks and `inspect`."""
        return read_source(str(self.path)).text

    def _whole(self, source: Source) -> CodeType | None:
        """Return the code of the whole file, None where only its statements one by one compile.

        In a notebook ``await`` may stand at top level, and ``from __future__`` in any cell.
        """
        try:
            return self._compile(source.tree, source)
        except SyntaxError:
            if source.notebook is None:
                raise
            return None

    def _compile(self, tree: ast.Module, source: Source, flags: int = 0) -> CodeType:
        code: CodeType = compile(tree, source.path, "exec", flags=flags, dont_inherit=True)
        return code

    def _run_definitions(self, source: Source, module: ModuleType) -> None:
        import __future__

        flags = 0
        for statement in source.tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
                for alias in statement.names:
                    flags |= getattr(__future__, alias.name).compiler_flag
        chosen = definitions_only(source.tree, self.session.wanted)
        self._make_on_demand(source, module, flags, {ast.dump(s) for s in chosen})
        for statement in chosen:
            part = ast.Module([statement], [])
            try:
                exec(self._compile(part, source, flags), module.__dict__)
            except Exception as error:
                if not self._tolerated(statement, error, module):
                    raise
            except SystemExit as error:
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    raise
                self._skipped(statement, error)

    def _make_on_demand(
        self, source: Source, module: ModuleType, flags: int, done: set[str]
    ) -> None:
        """Run an assignment that was left out when another file asks for the name that it makes."""
        if any(
            isinstance(s, ast.FunctionDef) and s.name == "__getattr__" for s in source.tree.body
        ):
            return

        def made(name: str) -> Any:
            for statement in making(source.tree, name) if not name.startswith("__") else ():
                key = ast.dump(statement)
                if key not in done:
                    done.add(key)
                    exec(self._compile(ast.Module([statement], []), source, flags), module.__dict__)
            if name in module.__dict__:
                return module.__dict__[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__dict__["__getattr__"] = made

    def _tolerated(self, statement: ast.stmt, error: Exception, module: ModuleType) -> bool:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            if not self.session.tolerant:
                return False
            for alias in statement.names:
                name = alias.asname or alias.name.partition(".")[0]
                if name not in module.__dict__ and name != "*":
                    full = f"{_imported_from(statement, module)}{alias.name}"
                    lacks = error.name if isinstance(error, ModuleNotFoundError) else None
                    needs = (lacks or "").partition(".")[0]
                    module.__dict__[name] = Missing(
                        full,
                        self.session.state,
                        describe(error),
                        "" if needs in self.session.modules else needs,
                    )
        elif isinstance(error, ImportError) and not self.session.tolerant:
            return False
        self._skipped(statement, error)
        return True

    def _skipped(self, statement: ast.stmt, error: BaseException) -> None:
        for name in defined_names(statement):
            self.session.failed[name] = error
        self.session.note(
            f"{self.path.name}:{statement.lineno} was skipped while loading ({describe(error)})"
        )


def _imported_from(statement: ast.Import | ast.ImportFrom, module: ModuleType) -> str:
    """Return the module that `statement` in `module` takes names from, with a dot behind it."""
    if isinstance(statement, ast.Import):
        return ""
    parents = (module.__package__ or "").split(".")
    kept = parents[: len(parents) - statement.level + 1] if statement.level else []
    return "".join(f"{part}." for part in (*kept, statement.module) if part)


class ProjectFinder(importlib.abc.MetaPathFinder):
    """Finds modules and packages of the user in the session's roots, before installed ones."""

    def __init__(self, session: Session) -> None:
        """Search the roots of `session`."""
        self.session = session

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a user's file, or None."""
        name = fullname.rpartition(".")[2]
        if path is None:
            if fullname in sys.stdlib_module_names or fullname in PROTECTED:
                return None
            folders: Sequence[Path] = self.session.roots_of(fullname)
        elif fullname.rpartition(".")[0] in self.session.modules:
            folders = [Path(entry) for entry in path]
        else:
            return None
        for folder in folders:
            if (found := self._in(folder, name, fullname)) is not None:
                return found
        return None

    def _in(self, folder: Path, name: str, fullname: str) -> importlib.machinery.ModuleSpec | None:
        for file in (folder / name / "__init__.py", folder / f"{name}.py"):
            if file.is_file():
                return importlib.util.spec_from_file_location(
                    fullname,
                    file,
                    loader=UserLoader(fullname, file, self.session),
                    submodule_search_locations=[str(folder / name)]
                    if file.name == "__init__.py"
                    else None,
                )
        return None


class FolderFinder(ProjectFinder):
    """Finds folders without ``__init__.py``, after everything that is installed."""

    def _in(self, folder: Path, name: str, fullname: str) -> importlib.machinery.ModuleSpec | None:
        if not (folder / name).is_dir():
            return None
        loader = UserLoader(fullname, folder / name / "__init__.py", self.session)
        return importlib.util.spec_from_file_location(
            fullname, folder / name, loader=loader, submodule_search_locations=[str(folder / name)]
        )


def finders(session: Session) -> list[Any]:
    """Return the finders of `session`, the one that goes first at the head."""
    return [ProjectFinder(session), FolderFinder(session), StubFinder(session)]


def _offer_notebook_names(module: ModuleType, session: Session) -> None:
    """Give `module` what a notebook finds without any import."""
    for name in ("get_ipython", "display"):
        module.__dict__[name] = Missing(f"IPython.{name}", session.state)


def defined_names(statement: ast.stmt) -> set[str]:
    """Return the names that `statement` would have bound."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case _:
            return {
                node.id
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
