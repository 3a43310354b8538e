"""Import the user's file, by whichever of several ways works.

Of 86 files of real repositories a plain import loads 63, loading by path 74, by path with the
parents' ``__init__`` skipped 84: no single way suffices, so they are tried in turn.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from types import ModuleType

import torch

from mha_lint.model.report import NotChecked
from mha_lint.model.speakable import speakable
from mha_lint.targets.globals import fill_failed_globals
from mha_lint.targets.guard import guarded
from mha_lint.targets.importing import PROTECTED, LazyPackage, UserLoader, finders
from mha_lint.targets.notebooks.versions import in_force
from mha_lint.targets.session import Session, describe, is_interrupt
from mha_lint.targets.source import Source, SourceError, read_source
from mha_lint.targets.tables import Modules, tell
from mha_lint.targets.timelimit import TimeLimitError, time_limit

HIGHEST = 6
"""Folders above the target that are searched for the packages it imports."""


_STUBS = {"stub_missing": True}
_OPTIONS: tuple[dict[str, bool], ...] = (
    {},
    _STUBS,
    {**_STUBS, "deep": True},
    {**_STUBS, "deep": True, "tolerant": True},
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded module of the user and what it needs around it to run."""

    module: ModuleType
    source: Source
    session: Session
    home: str = ""
    """The folder of the package, for an installed one: its files count as the user's."""

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        """Run user code guarded, with its own modules importable."""
        with guarded(), _user_modules(self.session):
            if self.session.default_dtype is not None:
                torch.set_default_dtype(self.session.default_dtype)
            yield


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to import: under which name, and which folders to search first."""

    name: str
    package: tuple[tuple[str, Path], ...]
    roots: tuple[Path, ...]


def load_file(
    path: str,
    *,
    timeout: float,
    wanted: frozenset[str] = frozenset(),
    version: tuple[str, int] | None = None,
) -> Loaded | NotChecked:
    """Import the file at `path` without running its ``__main__`` part or training loops.

    `wanted`: names that are needed of it, besides those that its definitions read. `version`: name
    and line of the definition in a notebook that must be in force, where it holds several.
    """
    try:
        source = read_source(path)
        if version is not None and source.notebook is not None:
            source = dataclasses.replace(source, tree=in_force(source.tree, *version))
    except SourceError as error:
        return NotChecked(error.reason, error.hint)
    ways = _ways(source)
    first: BaseException | None = None
    deadline = time.monotonic() + timeout
    for options in _OPTIONS:
        for way in ways:
            outcome = _try(source, way, options, deadline, wanted)
            if isinstance(outcome, Loaded):
                return outcome
            if isinstance(outcome, TimeLimitError):
                return NotChecked(
                    f"importing {path} took longer than {timeout:g} s",
                    "move what runs at import below if __name__ == '__main__', or raise --timeout",
                )
            first = first or outcome
    assert first is not None
    return _import_failed(source, first)


def _try(
    source: Source,
    way: _Way,
    options: dict[str, bool],
    deadline: float,
    wanted: frozenset[str],
) -> Loaded | BaseException:
    error: BaseException | None = None
    for filter_all in (False, True):
        own = way.name.partition(".")[0]
        session = Session(way.roots, filter_all=filter_all, wanted=wanted, own=own, **options)
        left = deadline - time.monotonic()
        try:
            with guarded(), _user_modules(session), time_limit(left if filter_all else left / 2):
                module = _run(source, way, session)
                return Loaded(module, source, session, _installed_below(source.path))
        except TimeLimitError as limit:
            error = limit
            continue  # perhaps its definitions alone do not take so long
        except BaseException as other:
            if is_interrupt(other):
                raise
            return speakable(other)
    assert error is not None
    return error


def _run(source: Source, way: _Way, session: Session) -> ModuleType:
    sys.argv[:] = [source.path]
    sys.path[:0] = [str(root) for root in way.roots]
    for name, folder in way.package:
        session.adopt(name, LazyPackage(name, folder, session))
    path = Path(source.path).absolute()
    loader = UserLoader(way.name, path, session, source)
    spec = util.spec_from_file_location(way.name, path, loader=loader)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    session.adopt(way.name, module)
    spec.loader.exec_module(module)
    if isinstance(module, LazyPackage):
        module.fill()
    fill_failed_globals(module, source, session)
    session.default_dtype = torch.get_default_dtype()
    session.state.loading = False
    return module


def _installed_below(path: str) -> str:
    """Return the folder of the installed package that `path` lies in, "" if it is not installed."""
    parts = Path(path).absolute().parts
    for place, part in enumerate(parts[:-2]):
        if part in ("site-packages", "dist-packages"):
            return str(Path(*parts[: place + 2])) + os.sep
    return ""


def load_module(name: str, *, timeout: float) -> Loaded | NotChecked:
    """Import an installed module by its dotted name, as Python itself does."""
    session = Session(())
    try:
        with guarded(), time_limit(timeout):
            sys.path.insert(0, "")
            module = importlib.import_module(name)
    except TimeLimitError:
        return NotChecked(f"importing {name} took longer than {timeout:g} s", "raise --timeout")
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        error = speakable(raised)
        hint = ""
        if isinstance(error, ModuleNotFoundError) and error.name:
            hint = f"{error.name} is neither installed nor below the working directory"
        return NotChecked(f"importing {name} failed: {describe(error)}", hint, _text(error))
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return NotChecked(f"{name} has no Python source")
    try:
        home = str(Path(file).absolute().parent) + os.sep
        return Loaded(module, read_source(file), session, home)
    except SourceError as error:
        return NotChecked(error.reason, error.hint)


@contextlib.contextmanager
def _user_modules(session: Session) -> Iterator[None]:
    """Install the session's finders and modules; take all user modules out afterwards."""
    outside = Modules.now()
    before = outside.held
    for name in before:
        if "." not in name and _is_shadowed(name, session):
            for loaded in [n for n in before if n == name or n.startswith(f"{name}.")]:
                sys.modules.pop(loaded, None)
    shadowed = before.keys() - sys.modules.keys()
    _put_back(session)
    sys.modules.update(session.modules)
    session.finders = session.finders or finders(session)
    session.install()
    try:
        yield
    finally:
        replaced = outside.reinstate()
        _set_apart(session, before)
        for name in session.modules:
            sys.modules.pop(name, None)
        own = shadowed | session.modules.keys() | session.apart.keys()
        tell(replaced + outside.put_back(own))


def _put_back(session: Session) -> None:
    """Offer the installed packages that were loaded with stand-ins, as `_set_apart` left them."""
    sys.modules.update(session.apart)
    for name, module in session.apart.items():
        parent, _, last = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], last, module)


def _set_apart(session: Session, before: dict[str, ModuleType]) -> None:
    """Take the installed packages that were loaded with stand-ins out: others must not see them."""
    for name, module in dict(sys.modules).items() if session.tainted else ():
        if name.partition(".")[0] in session.tainted and before.get(name) is not module:
            session.apart[name] = sys.modules.pop(name)
            parent, _, last = name.rpartition(".")
            if parent in before and vars(before[parent]).get(last) is module:
                delattr(before[parent], last)


def _is_shadowed(name: str, session: Session) -> bool:
    """Tell whether an imported module called `name` hides a file of the user."""
    if name in sys.stdlib_module_names or name in PROTECTED or name.startswith("_"):
        return False
    module = sys.modules.get(name)
    if getattr(module, "__file__", None) is None:
        return False
    if name not in session.owns:
        session.owns[name] = any(
            (root / f"{name}.py").is_file() or (root / name / "__init__.py").is_file()
            for root in session.roots_of(name)
        )
    return session.owns[name]


def _ways(source: Source) -> list[_Way]:
    path = Path(source.path).absolute()
    folder, stem = path.parent, path.stem
    level = max(
        (n.level for n in ast.walk(source.tree) if isinstance(n, ast.ImportFrom)), default=0
    )
    parents: list[Path] = []
    here = folder
    while (here / "__init__.py").is_file() or len(parents) < level:
        parents.insert(0, here)
        if here == here.parent:
            break
        here = here.parent
    extra = _roots_of_imports(source, folder)
    top = parents[0].parent if parents else folder
    nearest = _unique([folder, top, *extra])
    farthest = _unique([*extra, top, folder])
    plain = stem if _free(stem) else f"{stem}__target"
    if not parents:
        ways = [_Way(plain, (), nearest), _Way(plain, (), farthest)]
        return ways[: 1 if nearest == farthest else 2]
    names = [".".join(p.name for p in parents[: i + 1]) for i in range(len(parents))]
    package = tuple(zip(names, parents, strict=True))
    dotted = f"{names[-1]}.{stem}"
    if stem == "__init__":
        dotted, package = names[-1], package[:-1]
    ways = [_Way(dotted, package, farthest), _Way(dotted, package, nearest)]
    if not level:
        ways.append(_Way(plain, (), nearest))
    return ways


def _free(name: str) -> bool:
    return name not in sys.stdlib_module_names and name not in sys.modules


def _roots_of_imports(source: Source, folder: Path) -> list[Path]:
    """Return folders above `folder` that hold a package which the file imports absolutely."""
    names = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    names -= sys.stdlib_module_names | {"torch", "numpy"}
    found = []
    for above in list(folder.parents)[:HIGHEST]:
        if above == above.parent:
            break
        if any((above / n).is_dir() or (above / f"{n}.py").is_file() for n in sorted(names)):
            found.append(above)
        if (above / ".git").exists():
            break
    return found


def _unique(folders: list[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(folders))


def _import_failed(source: Source, error: BaseException) -> NotChecked:
    line = next(
        (
            f.lineno
            for f in reversed(traceback.extract_tb(error.__traceback__))
            if Path(f.filename) == Path(source.path).absolute()
        ),
        None,
    )
    where = f"{source.path}:{line}" if line else source.path
    hint = ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"install {error.name.partition('.')[0]}, or run mha-lint where it is installed"
    elif isinstance(error, SystemExit):
        hint = "the file ends the interpreter when imported; move that below a __main__ guard"
    return NotChecked(f"importing {where} failed: {describe(error)}", hint, _text(error))


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-4000:]
