"""Draw the attention classes of public packages by a rule, from their source alone.

    python tests/zoo/packages_draw.py --site SITE_PACKAGES [--check]

Writes ``packages_classes.txt``: ``package==version  relative/path.py::Class``, sorted. Nothing is
imported. Drawn is every class of a package in ``packages_drawn.txt`` that

a. has a base whose name ends in Module, Layer, Block or Attention, or inherits from a class of
   the same package that does (bases are looked up by name: the same file first, then the package);
b. holds an attention call in its own body: ``scaled_dot_product_attention(...)``,
   ``multi_head_attention_forward(...)``, ``nn.MultiheadAttention(...)``, or a softmax (a call of a
   name that ends in softmax, other than log_softmax, or ``nn.Softmax(...)``) together with two
   contractions (``@``, matmul, bmm, baddbmm, einsum, dot);
c. has a ``forward``, its own or one inherited inside the package; and
d. can be named: it stands at the top level of a file (``if`` and ``try`` count as top level) that
   is no test (no folder test, tests or testing, no file test_*.py, *_test.py or conftest.py).

Packages are taken whole, in the order of ``packages_drawn.txt``, as long as no more than 400
classes are in the list. ``--check`` writes nothing and exits 1 if the list would change.
"""

from __future__ import annotations

import argparse
import ast
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES, CLASSES = HERE / "packages_drawn.txt", HERE / "packages_classes.txt"

MOST = 400
BASES = ("Module", "Layer", "Block", "Attention")
CALLS = {"scaled_dot_product_attention", "multi_head_attention_forward"}
CONTRACTIONS = {"matmul", "bmm", "baddbmm", "einsum", "dot"}
TEST_FOLDERS = {"test", "tests", "testing"}


@dataclass(frozen=True, slots=True)
class Class:
    """A class statement: where it stands, its bases' last names, and what its own body holds."""

    path: str
    name: str
    bases: tuple[str, ...]
    attends: bool
    forward: bool


@dataclass(slots=True)
class Package:
    """The classes of one package, by name."""

    pin: str
    classes: dict[str, list[Class]] = field(default_factory=dict)

    def drawn(self) -> list[str]:
        """Return the lines of the list that this package gives."""
        found = {
            f"{self.pin}  {each.path}::{each.name}"
            for group in self.classes.values()
            for each in group
            if each.attends and self.is_module(each) and self.has_forward(each)
        }
        return sorted(found)

    def is_module(self, of: Class, seen: frozenset[Class] = frozenset()) -> bool:
        """Tell whether `of` descends from a base that is named as a module is."""
        return any(base.endswith(BASES) for base in of.bases) or any(
            self.is_module(parent, seen | {of}) for parent in self.parents(of) - seen - {of}
        )

    def has_forward(self, of: Class, seen: frozenset[Class] = frozenset()) -> bool:
        """Tell whether `of`, or a class of the package that it inherits from, defines forward."""
        return of.forward or any(
            self.has_forward(parent, seen | {of}) for parent in self.parents(of) - seen - {of}
        )

    def parents(self, of: Class) -> set[Class]:
        """Return the classes that the bases' names stand for: of the same file, or of any."""
        found: set[Class] = set()
        for base in of.bases:
            named = self.classes.get(base, [])
            found.update([each for each in named if each.path == of.path] or named)
        return found


def last_name(node: ast.expr) -> str:
    """Return ``Module`` of ``nn.Module``, ``Base`` of ``Base[int]``, '' of anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return last_name(value)
        case _:
            return ""


def from_torch_nn(tree: ast.Module) -> set[str]:
    """Return the names that the file imports from ``torch.nn`` or below."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch.nn")
        for alias in node.names
    }


def attends(body: ast.ClassDef, torch_names: set[str]) -> bool:
    """Tell whether the class's own body holds an attention call (rule b)."""
    softmaxes = contractions = 0
    for node in ast.walk(body):
        match node:
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                contractions += 1
            case ast.Call(func=func):
                name = last_name(func)
                of_torch = name in torch_names or (
                    isinstance(func, ast.Attribute) and last_name(func.value) == "nn"
                )
                if name in CALLS or (name == "MultiheadAttention" and of_torch):
                    return True
                softmaxes += name.endswith("softmax") and not name.endswith("log_softmax")
                softmaxes += name == "Softmax" and of_torch
                contractions += name in CONTRACTIONS
            case _:
                pass
    return softmaxes >= 1 and contractions >= 2


def top_level(body: list[ast.stmt]) -> Iterator[ast.ClassDef]:
    """Yield the classes that a file defines at its top level, below ``if`` and ``try`` too."""
    for node in body:
        match node:
            case ast.ClassDef():
                yield node
            case ast.If(body=then, orelse=other):
                yield from top_level(then + other)
            case ast.Try(body=then, handlers=handlers, orelse=other, finalbody=last):
                yield from top_level(then + other + last)
                for handler in handlers:
                    yield from top_level(handler.body)
            case _:
                pass


def is_test(path: Path) -> bool:
    """Tell whether the file is a package's test (rule d)."""
    name = path.name
    return (
        bool(TEST_FOLDERS & set(path.parts[:-1]))
        or name.startswith("test_")
        or name.endswith("_test.py")
        or name == "conftest.py"
    )


def classes_of(file: Path, path: str) -> Iterator[Class]:
    """Yield the top-level classes of one file; none if it is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    torch_names = from_torch_nn(tree)
    for node in top_level(tree.body):
        bases = tuple(name for name in map(last_name, node.bases) if name)
        forward = any(
            isinstance(each, ast.FunctionDef) and each.name == "forward" for each in node.body
        )
        yield Class(path, node.name, bases, attends(node, torch_names), forward)


def read(pin: str, site: Path) -> Package:
    """Read the installed package `pin` ("name==version") under `site`."""
    name, _, version = pin.partition("==")
    found = next(iter(metadata.distributions(name=name, path=[str(site)])), None)
    if found is None or found.version != version:
        raise SystemExit(f"{pin} is not installed in {site}")
    package = Package(pin)
    for path in sorted(found.files or []):
        if path.suffix == ".py" and ".." not in path.parts and not is_test(Path(path)):
            for each in classes_of(site / path, path.as_posix()):
                package.classes.setdefault(each.name, []).append(each)
    return package


def pins() -> list[str]:
    """Return the packages of ``packages_drawn.txt`` in order."""
    lines = PACKAGES.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def main() -> int:
    """Write the list, or check it."""
    parser = argparse.ArgumentParser(description="Draw the attention classes of public packages.")
    parser.add_argument("--site", type=Path, required=True, help="the site-packages folder")
    parser.add_argument("--check", action="store_true", help="write nothing, compare only")
    options = parser.parse_args()
    drawn: list[str] = []
    for pin in pins():
        lines = read(pin, options.site).drawn()
        taken = len(drawn) + len(lines) <= MOST
        drawn += lines if taken else []
        sys.stdout.write(f"{pin:28} {len(lines):4} classes{'' if taken else ', not taken'}\n")
    sys.stdout.write(f"{'all':28} {len(drawn):4} classes\n")
    text = "".join(f"{line}\n" for line in sorted(drawn))
    if options.check:
        return int(text != CLASSES.read_text("utf-8"))
    CLASSES.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
