"""The versions of a class or function that a notebook defines more than once.

Each is a target of its own. It is loaded as it was while it was in force: what stood above its next
definition, and of what follows only names that were not there yet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from mha_lint.targets.notebooks.read import Notebook

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_NAMING = (*Definition.__args__, ast.Import, ast.ImportFrom)


def versions(tree: ast.Module, book: Notebook, name: str) -> dict[int, Definition]:
    """Return the definitions of `name` at top level by the number of their cell.

    Of several in one cell only the last one is ever in force.
    """
    return {
        book.cell_of(node.lineno): node
        for node in tree.body
        if isinstance(node, Definition) and node.name == name
    }


def overridden(tree: ast.Module, book: Notebook) -> list[tuple[int, Definition]]:
    """Return cell and node of every definition that a later cell replaces by a different one."""
    names = dict.fromkeys(node.name for node in tree.body if isinstance(node, Definition))
    found: list[tuple[int, Definition]] = []
    for name in names:
        seen = versions(tree, book, name)
        said = {cell: _dump(node) for cell, node in seen.items()}
        kept = {text: cell for cell, text in said.items()}  # the last of equal ones
        last = max(seen)
        found += [(c, n) for c, n in seen.items() if c != last and kept[said[c]] == c]
    return sorted(found, key=lambda pair: pair[1].lineno)


def in_force(tree: ast.Module, name: str, line: int) -> ast.Module:
    """Return `tree` as it was while the definition of `name` at `line` was in force."""
    places = [n.lineno for n in tree.body if isinstance(n, Definition) and n.name == name]
    if len(places) < 2:
        return tree
    until = min((place for place in places if place > line), default=float("inf"))
    kind = next((type(n) for n in tree.body if n.lineno == line), None)
    body: list[ast.stmt] = []
    bound: set[str] = set()
    for statement in tree.body:
        at = statement.lineno
        names = _bound_by(statement)
        if at < line and name in names:  # it may extend what it replaces
            keep = isinstance(statement, ast.Import | ast.ImportFrom) or type(statement) is kind
        elif at < line:
            keep = isinstance(statement, _NAMING) or name not in _mentioned(statement)
        elif at < until:
            keep = True
        else:
            keep = bool(names) and not names & bound and _only_binds(statement, name)
        if keep:
            body.append(statement)
            bound |= names
    return ast.Module(body, [])


def until(tree: ast.Module, line: int) -> ast.Module:
    """Return the part of `tree` that ends with the statement at `line`."""
    return ast.Module([s for s in tree.body if s.lineno <= line], [])


def _dump(node: ast.AST) -> str:
    """Return what `ast.dump` does, or nearly so, of trees of any depth."""
    parts: list[str] = []
    todo: list[object] = [node]
    while todo:
        match todo.pop():
            case ast.AST() as inner:
                parts.append(f"{type(inner).__name__}/{len(inner._fields)}")
                todo += [getattr(inner, field, None) for field in inner._fields]
            case list() as items:
                parts.append(f"list/{len(items)}")
                todo += items
            case int(number) if not isinstance(number, bool):  # of any length, unlike repr
                parts.append(f"{number:#x}")
            case value:
                parts.append(repr(value))
    return " ".join(parts)


def _only_binds(statement: ast.stmt, name: str) -> bool:
    """Tell whether `statement` gives names to things that have nothing to do with `name`."""
    if isinstance(statement, _NAMING):
        return True
    return isinstance(statement, ast.Assign | ast.AnnAssign) and name not in _mentioned(statement)


def _bound_by(statement: ast.stmt) -> set[str]:
    if isinstance(statement, Definition):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    return set(_names(ast.walk(statement), ast.Store))


def _mentioned(statement: ast.stmt) -> set[str]:
    return set(_names(ast.walk(statement), ast.expr_context))


def _names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> Iterable[str]:
    return (n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, context))
