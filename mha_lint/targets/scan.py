"""Find, by reading alone, the classes and functions of a file that can hold attention.

Nothing of the file is imported, and torch is not either. The search is generous: whether there is
attention is decided later, on a recording.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from mha_lint.targets.classes import ClassInfo, names_made, read_classes
from mha_lint.targets.imports import read_imports
from mha_lint.targets.signals import (
    TORCH_LAYERS,
    Function,
    Sign,
    assignments,
    contracts,
    find_sign,
    is_normaliser,
)
from mha_lint.targets.source import Source, SourceError, read_source

DEEPEST = 3
"""Files that are followed from import to import."""

NO_MODULES = (
    "Dataset", "IterableDataset", "Enum", "IntEnum", "StrEnum", "NamedTuple", "TypedDict",
    "Protocol", "TestCase", "Function", "Exception", "Optimizer", "_Loss", "Sampler",
)  # fmt: skip
"""Last parts of the names of foreign bases whose subclasses hold no attention."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A class or function that can hold attention.

    ``constructs``: names of classes of the same file that it makes. ``reason``: what speaks for it.
    """

    qualname: str
    kind: Literal["class", "function"]
    line: int
    end_line: int
    reason: str
    constructs: tuple[str, ...] = ()


def scan_file(path: str) -> list[Candidate]:
    """Return the candidates of the file at `path`, in the order of their lines.

    Raises:
        SourceError: the file cannot be read or parsed.
    """
    return scan_source(read_source(path))


def scan_source(source: Source, *, depth: int = 0) -> list[Candidate]:
    """Return the candidates of an already parsed file; `depth` counts the imports followed."""
    scan = _Scan(source, depth)
    return sorted(scan.classes_found() + scan.functions_found(), key=lambda c: c.line)


class _Scan:
    def __init__(self, source: Source, depth: int) -> None:
        self.depth = depth
        self.imports = read_imports(source.tree, source.path)
        self.classes = read_classes(source.tree, self.imports)
        self.functions = {n.name: n for n in source.tree.body if isinstance(n, Function)}
        self.normalising = self._normalising_helpers()
        self.signs = {name: self._own_sign(info) for name, info in self.classes.items()}
        self.made = {
            name: {
                made
                for body in self._with_helpers(info.bodies())
                for made in names_made(body)
                if made in self.classes and made != name
            }
            for name, info in self.classes.items()
        }
        self.foreign: dict[str, bool] = {}
        self._spread()

    def classes_found(self) -> list[Candidate]:
        """Return the classes with a sign that can be built."""
        found = []
        for name, info in self.classes.items():
            sign = self.signs[name]
            if sign is None or not _is_module(info) or info.is_abstract:
                continue
            node = info.node
            made = tuple(sorted(self.made[name], key=lambda n: self.classes[n].node.lineno))
            end = node.end_lineno or node.lineno
            found.append(Candidate(name, "class", node.lineno, end, sign.reason, made))
        return found

    def functions_found(self) -> list[Candidate]:
        """Return top-level functions that attend over their arguments and serve no candidate."""
        used = {
            made
            for name, info in self.classes.items()
            if self.signs[name] is not None
            for body in self._with_helpers(info.bodies())
            for made in names_made(body)
        }
        with_sign = {}
        for name, node in self.functions.items():
            if _contracted_parameters(node) < 2 or name.startswith("test_"):
                continue
            sign = find_sign([node], self.imports, self.normalising)
            if sign is not None and not sign.reason.startswith("makes"):
                with_sign[name] = (node, sign)
        inner = {m for n, (node, _) in with_sign.items() for m in names_made(node) if m != n}
        return [
            Candidate(name, "function", node.lineno, node.end_lineno or node.lineno, sign.reason)
            for name, (node, sign) in with_sign.items()
            if name not in used and name not in inner
        ]

    def _own_sign(self, info: ClassInfo) -> Sign | None:
        for base in info.foreign_bases:
            if base.rpartition(".")[2] in TORCH_LAYERS and base.startswith("torch.nn"):
                return Sign(f"extends nn.{base.rpartition('.')[2]}", info.node.lineno)
        methods = {
            name
            for name, node in info.methods.items()
            if any(is_normaliser(part, self.imports) for part in ast.walk(node))
            and name not in ("forward", "__init__")
        }
        bodies = self._with_helpers(info.bodies())
        return find_sign(bodies, self.imports, self.normalising | methods)

    def _with_helpers(self, bodies: list[ast.AST]) -> list[ast.AST]:
        """Return `bodies` and the functions of the file that they call, directly or not."""
        found, todo = list(bodies), list(bodies)
        seen: set[str] = set()
        while todo:
            for name in set(names_made(todo.pop())) & self.functions.keys() - seen:
                seen.add(name)
                found.append(self.functions[name])
                todo.append(self.functions[name])
        return found

    def _normalising_helpers(self) -> set[str]:
        found = {
            name
            for name, node in self.functions.items()
            if any(is_normaliser(part, self.imports) for part in ast.walk(node))
            and not any(contracts(part) for part in ast.walk(node))
        }
        return found

    def _spread(self) -> None:
        """Make every class that constructs a candidate, here or in another file, one too."""
        changed = True
        while changed:
            changed = False
            for name, info in self.classes.items():
                if self.signs[name] is None and (sign := self._by_part(name, info)) is not None:
                    self.signs[name] = sign
                    changed = True

    def _by_part(self, name: str, info: ClassInfo) -> Sign | None:
        for made in sorted(self.made[name]):
            if self.signs[made] is not None:
                return Sign(f"constructs {made}", info.node.lineno)
        for base in info.bases:
            if self.signs[base.name] is not None and "forward" not in vars_of(info):
                return Sign(f"extends {base.name}", info.node.lineno)
        names = {made for body in self._with_helpers(info.bodies()) for made in names_made(body)}
        for made in sorted(names & self.imports.files.keys()):
            if self._is_foreign_candidate(made):
                return Sign(f"constructs {made}", info.node.lineno)
        return None

    def _is_foreign_candidate(self, name: str) -> bool:
        if name not in self.foreign:
            file, original = self.imports.files[name]
            self.foreign[name] = False  # also the answer in a circle of imports
            if self.depth < DEEPEST:
                try:
                    found = scan_source(read_source(file), depth=self.depth + 1)
                except SourceError:
                    found = []
                self.foreign[name] = any(
                    c.qualname == original and c.kind == "class" for c in found
                )
        return self.foreign[name]


def vars_of(info: ClassInfo) -> set[str]:
    """Return the names of the methods that the class itself defines."""
    return {n.name for n in info.node.body if isinstance(n, Function)}


def _is_module(info: ClassInfo) -> bool:
    if any(base.rpartition(".")[2] in NO_MODULES for base in info.foreign_bases):
        return False
    if "forward" in info.methods:
        return True
    return any(
        base not in ("", "object", "abc.ABC", "torch.nn.Module", "torch.nn.Sequential")
        and not base.startswith("typing.")
        for base in info.foreign_bases
    )


def _contracted_parameters(function: Function) -> int:
    """Count the parameters whose values reach a contraction or an attention kernel."""
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    reaches: dict[str, set[str]] = {name: {name} for name in names}
    for _ in range(3):
        for node in ast.walk(function):
            for targets, value in assignments(node):
                read = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
                from_ = {p for name in read for p in reaches.get(name, ())}
                for target in targets:
                    reaches.setdefault(target, set()).update(from_)
    used: set[str] = set()
    for node in ast.walk(function):
        called = node.func if isinstance(node, ast.Call) else None
        name = getattr(called, "attr", getattr(called, "id", ""))
        if contracts(node) or "attention" in name:
            for part in ast.walk(node):
                if isinstance(part, ast.Name):
                    used |= reaches.get(part.id, set())
    return len(used & set(names))
