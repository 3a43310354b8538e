"""The targets that a notebook holds: its classes and functions, each version of them, broken cells."""

from __future__ import annotations

import dataclasses
import re

from mha_lint.model.printable import printable
from mha_lint.model.report import NotChecked
from mha_lint.model.target import TargetSpec
from mha_lint.targets.notebooks.read import Notebook
from mha_lint.targets.notebooks.versions import overridden, until, versions
from mha_lint.targets.project import Project
from mha_lint.targets.scan import Candidate, scan_source
from mha_lint.targets.source import Source

_VERSION = re.compile(r"(?P<name>[A-Za-z_][\w.]*)@(?P<cell>\d+)")


def notebook_targets(
    spec: TargetSpec, source: Source, book: Notebook, project: Project | None = None
) -> list[TargetSpec | NotChecked]:
    """Return a spec for everything in `source` that can hold attention, and for broken cells.

    What a later cell replaces is a target of its own, ``book.ipynb::Class@3``. A cell with a syntax
    error is told as not checked if it defines anything.
    """
    found: list[tuple[int, TargetSpec | NotChecked]] = [
        (one.line, _spec(spec, one.qualname, one.line))
        for one in scan_source(source, project=project)
    ]
    found += [
        (one.line, _spec(spec, one.qualname, one.line, f"@{cell}"))
        for cell, one in replaced(source, book)
    ]
    for broken in book.broken:
        if broken.defines:
            names = f"::{broken.defines[0]}" if len(broken.defines) == 1 else ""
            line = next(cell.first for cell in book.cells if cell.number == broken.cell)
            hint = "the other cells are read without it"
            found.append((line, NotChecked(str(broken), hint, target=f"{spec.path}{names}")))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def replaced(source: Source, book: Notebook) -> list[tuple[int, Candidate]]:
    """Return cell and candidate of what can hold attention and a later cell defines anew."""
    found: list[tuple[int, Candidate]] = []
    for cell, node in overridden(source.tree, book):
        then = dataclasses.replace(source, tree=until(source.tree, node.lineno))
        found += [(cell, one) for one in scan_source(then) if one.line == node.lineno]
    return found


def named_in_notebook(
    spec: TargetSpec, source: Source, book: Notebook
) -> TargetSpec | NotChecked | None:
    """Return the target of ``book.ipynb::Class@3``; None where no cell need be looked at."""
    name = spec.qualname or ""
    match = _VERSION.fullmatch(name)
    if match is None:
        broken = next((b for b in book.broken if name in b.defines), None)
        if broken is None or versions(source.tree, book, name):
            return None
        return NotChecked(str(broken), target=spec.text)
    name, cell = match["name"], int(match["cell"][-9:])
    known = versions(source.tree, book, name)
    if cell in known:
        return dataclasses.replace(spec, qualname=name, line=known[cell].lineno)
    places = ", ".join(map(str, sorted(known)))
    hint = f"it is defined in cell{'' if len(known) == 1 else 's'} {places}" if known else ""
    reason = f"cell {match['cell']} of {spec.path} defines no {name}"
    return NotChecked(printable(reason), hint, target=spec.text)


def _spec(spec: TargetSpec, qualname: str, line: int, version: str = "") -> TargetSpec:
    text = f"{spec.path}::{qualname}{version}"
    return dataclasses.replace(spec, text=text, qualname=qualname, stated=False, line=line)
