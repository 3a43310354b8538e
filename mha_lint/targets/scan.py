"""Find, by reading alone, the classes and functions of a file that can hold attention.

Nothing of the file is imported, and torch is not either. The search is generous: whether there is
attention is decided later, on a recording.
"""

from __future__ import annotations

import ast
import heapq
from dataclasses import dataclass
from typing import Literal

from mha_lint.targets.classes import ClassInfo, names_made, read_classes
from mha_lint.targets.imports import read_imports
from mha_lint.targets.project import DEEPEST, Project
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


def scan_source(
    source: Source, *, depth: int = 0, project: Project | None = None
) -> list[Candidate]:
    """Return the candidates of an already parsed file; `depth` counts the imports followed.

    `project`: what is known of the files around, which many scans share.
    """
    return _candidates(_File(source, project or Project()), depth)


def _candidates(file: _File, depth: int) -> list[Candidate]:
    scan = _Scan(file, depth)
    return sorted(scan.classes_found() + scan.functions_found(), key=lambda c: c.line)


class _File:
    """What a file tells by itself, whatever it imports: the same however many imports lead to it."""

    def __init__(self, source: Source, project: Project) -> None:
        self.project = project
        self.imports = read_imports(source.tree, source.path, project.modules)
        self.classes = read_classes(source.tree, self.imports)
        self.functions = {n.name: n for n in source.tree.body if isinstance(n, Function)}
        self.normalising = self._normalising_helpers()
        self.signs = {name: self._own_sign(info) for name, info in self.classes.items()}
        self.names = {
            name: {made for body in self._with_helpers(info.bodies()) for made in names_made(body)}
            for name, info in self.classes.items()
        }

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


class _Scan:
    def __init__(self, file: _File, depth: int) -> None:
        self.depth = depth
        self.project = file.project
        self.file = file
        self.imports = file.imports
        self.classes = file.classes
        self.functions = file.functions
        self.signs = dict(file.signs)
        self.made = {
            name: (names & self.classes.keys()) - {name} for name, names in file.names.items()
        }
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
            for name in self.classes
            if self.signs[name] is not None
            for made in self.file.names[name]
        }
        with_sign = {}
        for name, node in self.functions.items():
            if _contracted_parameters(node) < 2 or name.startswith("test_"):
                continue
            sign = find_sign([node], self.imports, self.file.normalising)
            if sign is not None and not sign.reason.startswith("makes"):
                with_sign[name] = (node, sign)
        inner = {m for n, (node, _) in with_sign.items() for m in names_made(node) if m != n}
        return [
            Candidate(name, "function", node.lineno, node.end_lineno or node.lineno, sign.reason)
            for name, (node, sign) in with_sign.items()
            if name not in used and name not in inner
        ]

    def _spread(self) -> None:
        """Make every class that constructs a candidate, here or in another file, one too."""
        names = list(self.classes)
        users: dict[str, set[int]] = {}
        for at, (name, info) in enumerate(self.classes.items()):
            for part in self.made[name] | {base.name for base in info.bases}:
                users.setdefault(part, set()).add(at)
        todo = [(0, at) for at in range(len(names))]  # rounds over all classes, in their order
        while todo:
            turn, at = heapq.heappop(todo)
            name = names[at]
            if self.signs[name] is not None:
                continue
            self.signs[name] = self._by_part(name, self.classes[name])
            if self.signs[name] is not None:  # now look again at those that it makes candidates
                for user in users.get(name, ()):
                    heapq.heappush(todo, (turn + (user < at), user))

    def _by_part(self, name: str, info: ClassInfo) -> Sign | None:
        for made in sorted(self.made[name]):
            if self.signs[made] is not None:
                return Sign(f"constructs {made}", info.node.lineno)
        for base in info.bases:
            if self.signs[base.name] is not None and "forward" not in vars_of(info):
                return Sign(f"extends {base.name}", info.node.lineno)
        for made in sorted(self.file.names[name] & self.imports.files.keys()):
            if self._is_foreign_candidate(made):
                return Sign(f"constructs {made}", info.node.lineno)
        return None

    def _is_foreign_candidate(self, name: str) -> bool:
        if self.depth >= DEEPEST:
            return False
        file, original = self.imports.files[name]
        key = (file, self.depth + 1)
        found = self.project.found
        if key not in found:
            found[key] = self._classes_of(file)
        return original in found[key]

    def _classes_of(self, file: str) -> frozenset[str]:
        """Return the classes of another file that can hold attention."""
        depth = self.depth + 1
        if not self.project.may_hold(file, depth):
            return frozenset()
        try:
            known = self.project.kept(file, lambda: _File(read_source(file), self.project))
        except SourceError:
            return frozenset()
        return frozenset(c.qualname for c in _candidates(known, depth) if c.kind == "class")


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
    nodes = list(ast.walk(function))
    contracted = [node for node in nodes if contracts(node) or "attention" in _called(node)]
    if not contracted:
        return 0
    bound = [pair for node in nodes for pair in assignments(node)]
    reaches: dict[str, set[str]] = {name: {name} for name in names}
    for _ in range(3):
        for targets, value in bound:
            read = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
            from_ = {p for name in read for p in reaches.get(name, ())}
            for target in targets:
                reaches.setdefault(target, set()).update(from_)
    read = {n.id for node in contracted for n in ast.walk(node) if isinstance(n, ast.Name)}
    used = {parameter for name in read for parameter in reaches.get(name, ())}
    return len(used & set(names))


def _called(node: ast.AST) -> str:
    """Return the last name of what `node` calls; "" where it calls nothing by name."""
    called = node.func if isinstance(node, ast.Call) else None
    return getattr(called, "attr", getattr(called, "id", ""))
