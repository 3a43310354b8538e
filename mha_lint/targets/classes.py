"""The classes of one file: bases, inherited methods, what they make and call."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from mha_lint.targets.imports import Imports
from mha_lint.targets.signals import Function

ABSTRACT = frozenset({"abstractmethod", "abstractproperty", "overload"})
LONGEST_LINE = 100
"""Classes that one is taken to inherit from; no real line is nearly as long."""


@dataclass(eq=False)
class ClassInfo:
    """One class: ``bases`` are those of the same file, ``foreign`` the dotted names of others."""

    name: str
    node: ast.ClassDef
    bases: list[ClassInfo] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @functools.cached_property
    def methods(self) -> dict[str, Function]:
        """Return own and inherited methods by name."""
        found: dict[str, Function] = {}
        for info in reversed(self.lineage):
            found.update({n.name: n for n in info.node.body if isinstance(n, Function)})
        return found

    @functools.cached_property
    def lineage(self) -> list[ClassInfo]:
        """Return the class and its bases, whose bases follow each, `LONGEST_LINE` of them at most."""
        found: dict[int, ClassInfo] = {}
        todo = [self]
        while todo and len(found) < LONGEST_LINE:
            info = todo.pop()
            if id(info) not in found:
                found[id(info)] = info
                todo += reversed(info.bases)
        return list(found.values())

    @functools.cached_property
    def foreign_bases(self) -> list[str]:
        """Return the dotted names of all bases that other files define."""
        return [name for info in self.lineage for name in info.foreign]

    @property
    def is_abstract(self) -> bool:
        """Tell whether a method is left to subclasses, or ``forward`` only raises."""
        if any(_decorators(method) & ABSTRACT for method in self.methods.values()):
            return True
        forward = self.methods.get("forward")
        return forward is not None and _is_empty(forward)

    def bodies(self) -> list[ast.AST]:
        """Return the nodes to search: methods and class-level assignments, inherited too."""
        own: list[ast.AST] = [
            n for n in self.node.body if isinstance(n, ast.Assign | ast.AnnAssign)
        ]
        return [*self.methods.values(), *own]


def read_classes(tree: ast.Module, imports: Imports) -> dict[str, ClassInfo]:
    """Return the classes of `tree` by qualified name, with local bases resolved."""
    found = {name: ClassInfo(name, node) for name, node in _definitions(tree.body, "")}
    for info in found.values():
        for base in info.node.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            name = plain.id if isinstance(plain, ast.Name) else ""
            if name in found and found[name] is not info:
                info.bases.append(found[name])
            else:
                info.foreign.append(imports.dotted(plain))
    return found


def names_made(body: ast.AST) -> Iterator[str]:
    """Yield the names that `body` calls or hands over, outside annotations and isinstance."""
    todo = [body]
    while todo:
        node = todo.pop()
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass" | "super")):
                continue
            case ast.Name(id=name, ctx=ast.Load()):
                yield name
            case ast.arg():
                continue
            case ast.AnnAssign(value=value):
                todo += [value] if value is not None else []
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                todo += [*node.body, node.args]
            case ast.ClassDef():
                todo += node.body
            case _:
                todo.extend(ast.iter_child_nodes(node))


def _definitions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    todo = [(prefix, statement) for statement in reversed(body)]
    while todo:
        prefix, statement = todo.pop()
        inner: list[ast.stmt] = []
        match statement:
            case ast.ClassDef(name=name):
                yield prefix + name, statement
                prefix, inner = f"{prefix}{name}.", statement.body
            case ast.If() | ast.With():
                inner = [*statement.body, *getattr(statement, "orelse", [])]
            case ast.Try():
                inner = statement.body + statement.orelse
        todo += [(prefix, one) for one in reversed(inner)]


def _decorators(function: Function) -> set[str]:
    names = set()
    for decorator in function.decorator_list:
        node = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return names


def _is_empty(function: Function) -> bool:
    """Tell whether nothing but a docstring, ``pass``, ``...`` or a raise is in `function`."""
    return all(
        isinstance(s, ast.Pass)
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        or (isinstance(s, ast.Raise) and any(map(_says_not_implemented, ast.walk(s))))
        for s in function.body
    )


def _says_not_implemented(node: ast.AST) -> bool:
    said = (getattr(node, field, "") for field in ("id", "attr", "value"))
    return any(isinstance(text, str) and "NotImplemented" in text for text in said)
