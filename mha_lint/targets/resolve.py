"""From the text of a target to what it names: a file, a class or function in it, a module's name."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from mha_lint.model.printable import printable
from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.targets.imports import find_module
from mha_lint.targets.notebooks.read import INSTALL, NoReaderError, OtherLanguageError
from mha_lint.targets.notebooks.targets import named_in_notebook, notebook_targets
from mha_lint.targets.paths import is_file, is_folder, why_no_file
from mha_lint.targets.project import Project
from mha_lint.targets.scan import scan_source
from mha_lint.targets.source import (
    NOTEBOOK,
    Source,
    SourceError,
    definition,
    parse,
    read_source,
)
from mha_lint.targets.words import words

SOURCE_ENDINGS = (".py", ".pyw", NOTEBOOK)
MODEL_CONFIG = ".json"
SKIPPED_FOLDERS = words(
    """__pycache__ node_modules build dist site-packages venv env virtualenv __pypackages__ wheels
    buck-out _build bower_components"""
)
MODULE_TARGET = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_][\w.]*)")
ONE_COLON = re.compile(r"(?P<file>.+\.(?:pyw?|ipynb)):(?P<name>[A-Za-z_][\w.]*)")
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def parse_target(text: str, *, cwd: str) -> TargetSpec | NotChecked:
    """Return what `text` names; folders and whole files come back as they are, see `expand`.

    Understood: ``path.py``, ``path.py::Class``, ``path.py::function``, ``package.module:name``,
    a folder, and notebooks in place of files; ``book.ipynb::Class@3`` is the class as cell 3
    defines it. Paths are relative to `cwd` and stay as the user wrote them.
    """
    place, separator, name = text.partition("::")
    if separator and not name:
        return _not_checked(f"{text} names nothing after ::", "write path.py::Class", text)
    file = Path(cwd, place)
    if is_folder(file):
        if separator:
            reason = f"{place} is a folder, it has no {name}"
            return _not_checked(reason, f"write {place.rstrip('/')}/FILE.py::{name}", text)
        return TargetSpec(text=text, path=place, stated=False)
    if is_file(file):
        if file.suffix == MODEL_CONFIG and not separator:
            return TargetSpec(text=text, path=place)
        if file.suffix not in SOURCE_ENDINGS:
            return _not_python(text, place)
        return TargetSpec(
            text=text,
            path=place,
            qualname=name.replace("::", ".") or None,
            stated=bool(separator),
        )
    if not separator and (match := ONE_COLON.fullmatch(text)) is not None:
        hint = f"two colons: {match['file']}::{match['name']}"
        return _not_checked(why_no_file(file, place), hint, text)
    if not separator and (match := MODULE_TARGET.fullmatch(text)) is not None:
        return _module(text, match["module"], match["name"], cwd)
    if not separator and DOTTED.fullmatch(text) and not text.endswith((".py", ".ipynb", ".json")):
        found = find_module(text, 0, Path(cwd).absolute() / "_")
        if found is not None:
            return TargetSpec(text=text, path=_relative(found, cwd), stated=False)
    return _not_checked(why_no_file(file, place), _similar_file(file), text)


def _not_checked(reason: str, hint: str, target: str) -> NotChecked:
    """Return why a target is not checked; what the user or a file wrote stays in its line."""
    return NotChecked(printable(reason), printable(hint), target=target)


def _not_python(text: str, place: str) -> NotChecked:
    """Return why a file that the user names is not read, rather than finding nothing in it."""
    hint = "name a file that ends in .py or .ipynb, a model's config.json, or a folder"
    return _not_checked(f"{place} is not a Python file", hint, text)


def expand(specs: Iterable[TargetSpec], *, cwd: str) -> list[TargetSpec | NotChecked]:
    """Return one spec per class or function to check, in the order of files and lines.

    A folder yields the candidates of all Python files and notebooks below it, a file its own; one
    without any yields nothing. Files of a folder in which no word of attention stands are not parsed
    (see `Project.may_hold`), and so their syntax errors are not told. A named class or function is
    looked up by reading, so that a wrong name is told without importing anything.
    """
    found: list[TargetSpec | NotChecked] = []
    for spec in specs:
        if spec.path is None:
            found.append(spec)
        elif is_folder(Path(cwd, spec.path)):
            found += _folder(spec, cwd)
        elif Path(spec.path).suffix == MODEL_CONFIG:
            found.append(spec)
        elif Path(spec.path).suffix not in SOURCE_ENDINGS:  # one of the configuration
            found.append(_not_python(spec.text, spec.path))
        elif spec.qualname is not None:
            found.append(_named(spec, cwd))
        elif spec.build is not None:
            found.append(dataclasses.replace(spec, qualname=_made_by(spec.build)))
        else:
            found += _candidates(spec, cwd)
    return found


def python_files(
    folder: str | Path, closed: Callable[[OSError], object] | None = None
) -> Iterator[Path]:
    """Yield the Python files and notebooks below `folder`, sorted.

    Hidden folders, environments and builds are skipped; `closed` is told of each folder that
    cannot be read.
    """
    for here, folders, files in os.walk(folder, onerror=closed):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in SKIPPED_FOLDERS
            and not name.endswith(".egg-info")
            and not is_file(Path(here, name, "pyvenv.cfg"))
        )
        for name in sorted(files):
            if name.endswith((".py", NOTEBOOK)) and not name.startswith("."):
                yield Path(here, name)


def bound_names(source: Source) -> set[str] | None:
    """Return every name bound at top level and ``Class.Nested``; None: a star import hides some."""
    names: set[str] = set()
    todo: list[tuple[str, ast.AST]] = [("", source.tree)]
    while todo:
        prefix, node = todo.pop()
        match node:
            case ast.ClassDef(name=name, body=body):
                names.add(prefix + name)
                todo += [(f"{prefix}{name}.", inner) for inner in body]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(prefix + name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                if any(alias.name == "*" for alias in aliases):
                    return None
                names |= {prefix + (a.asname or a.name.partition(".")[0]) for a in aliases}
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(prefix + name)
            case _:
                todo += [(prefix, inner) for inner in ast.iter_child_nodes(node)]
    return names


def _module(text: str, module: str, name: str, cwd: str) -> TargetSpec:
    found = find_module(module, 0, Path(cwd).absolute() / "_")
    path = _relative(found, cwd) if found is not None else None
    return TargetSpec(text=text, path=path, module=module, qualname=name)


def _relative(path: Path, cwd: str) -> str:
    base = Path(cwd).absolute()
    return str(path.relative_to(base)) if path.is_relative_to(base) else str(path)


def _folder(spec: TargetSpec, cwd: str) -> list[TargetSpec | NotChecked]:
    assert spec.path is not None
    found: list[TargetSpec | NotChecked] = []
    closed: list[OSError] = []
    files = list(python_files(Path(cwd, spec.path), closed.append))
    for error in closed:
        inside = os.path.relpath(error.filename, cwd) if error.filename else spec.path
        reason = f"the folder {inside} cannot be read: {error.strerror}"
        found.append(_not_checked(reason, "", str(inside)))
    if not files and not closed:
        hint = "hidden folders, virtual environments and build folders are skipped"
        return [_not_checked(f"no Python files below {spec.path}", hint, spec.text)]
    unread: list[str] = []
    project = Project()
    for file in files:
        if not project.may_hold(str(file)):
            continue
        inside = str(Path(spec.path) / file.relative_to(Path(cwd, spec.path)))
        own = dataclasses.replace(spec, text=inside, path=inside)
        try:
            found += _candidates_of(own, _read(own, cwd), project)
        except SourceError as error:
            if isinstance(error.__cause__, NoReaderError):
                unread += [inside] if may_hold_attention(file) else []
            elif not isinstance(error.__cause__, OtherLanguageError):
                found.append(NotChecked(error.reason, error.hint, target=inside))
    if unread:
        rest = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
        reason = f"{unread[0]}{rest} may hold attention, and nbformat is not installed"
        found.append(_not_checked(reason, INSTALL, unread[0]))
    return found


def may_hold_attention(notebook: Path) -> bool:
    """Tell, without a reader for notebooks, whether one can hold attention that is built on torch."""
    try:
        text = notebook.read_bytes()
    except OSError:
        return True
    return b"torch" in text and any(word in text.lower() for word in (b"softmax", b"attention"))


def _candidates(spec: TargetSpec, cwd: str) -> list[TargetSpec | NotChecked]:
    try:
        return _candidates_of(spec, _read(spec, cwd))
    except SourceError as error:
        return [NotChecked(error.reason, error.hint, target=spec.text)]


def _candidates_of(
    spec: TargetSpec, source: Source, project: Project | None = None
) -> list[TargetSpec | NotChecked]:
    if source.notebook is not None:
        return notebook_targets(spec, source, source.notebook, project)
    return [
        dataclasses.replace(
            spec,
            text=f"{spec.path}::{candidate.qualname}",
            qualname=candidate.qualname,
            stated=False,
            line=candidate.line,
        )
        for candidate in scan_source(source, project=project)
    ]


def _named(spec: TargetSpec, cwd: str) -> TargetSpec | NotChecked:
    assert spec.path is not None and spec.qualname is not None
    try:
        source = _read(spec, cwd)
    except SourceError as error:
        return NotChecked(error.reason, error.hint, target=spec.text)
    if source.notebook is not None:
        version = named_in_notebook(spec, source, source.notebook)
        if version is not None:
            return version
    method = _method(source, spec.qualname)
    if method is not None:
        owner, name = method
        return _not_checked(
            f"{owner}.{name} is a method, and a target is a class or a function",
            f"name the class: {spec.path}::{owner}",
            spec.text,
        )
    names = bound_names(source)
    if names is None or spec.qualname in names or spec.qualname.partition(".")[0] in names:
        return dataclasses.replace(spec, line=_line(source, spec.qualname))
    return _not_checked(
        f"{spec.path} has no class or function {spec.qualname}",
        _similar_name(source, spec.qualname, names),
        spec.text,
    )


def _method(source: Source, qualname: str) -> tuple[str, str] | None:
    """Return class and name where `qualname` is a method (no static one) of a class."""
    owner, _, name = qualname.rpartition(".")
    body: list[ast.stmt] = source.tree.body
    for part in owner.split("."):
        found = [n for n in body if isinstance(n, ast.ClassDef) and n.name == part]
        if not found:
            return None
        body = found[-1].body
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            static = any(getattr(d, "id", "") == "staticmethod" for d in node.decorator_list)
            return None if static else (owner, name)
    return None


def _read(spec: TargetSpec, cwd: str) -> Source:
    """Read the file; messages name it as the user wrote it."""
    assert spec.path is not None
    full = str(Path(cwd, spec.path))
    try:
        return read_source(full)
    except SourceError as error:
        reason = error.reason.replace(printable(full), printable(spec.path))
        told = SourceError(reason, error.hint)
        raise told from error.__cause__


def _line(source: Source, qualname: str) -> int | None:
    node = definition(source, qualname)
    return None if node is None else node.lineno


def _similar_name(source: Source, wanted: str, names: set[str]) -> str:
    shown = {name for name in names if "." in wanted or "." not in name}
    by_lower = {name.lower(): name for name in sorted(shown)}
    close = difflib.get_close_matches(wanted.lower(), sorted(by_lower), n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(by_lower[name] for name in close)}?"
    candidates = [c.qualname for c in scan_source(source)]
    if candidates:
        return f"what can hold attention there: {', '.join(candidates[:6])}"
    return "nothing in this file looks like attention"


def _similar_file(file: Path) -> str:
    try:
        beside = sorted(file.parent.iterdir())
    except (OSError, ValueError):
        return ""
    stems = {
        p.stem if p.suffix == file.suffix else p.name: p.name
        for p in beside
        if p.suffix in (".py", NOTEBOOK) or (not file.suffix and is_folder(p))
    }
    close = difflib.get_close_matches(file.stem, stems, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(stems[name] for name in close)}?" if close else ""


def _made_by(build: str) -> str | None:
    """Return the class that a --build expression calls first, if it can be told."""
    try:
        statements = parse(build.strip(), "--build").body
    except SourceError:
        return None
    if len(statements) != 1 or not isinstance(statements[0], ast.Expr):
        return None
    node: ast.AST = statements[0].value
    while isinstance(node, ast.Call):
        inner = node.func
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Call):
            inner = inner.value
        node = inner
    try:
        return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else None
    except RecursionError:  # names joined by thousands of dots
        return None
