"""How the user's own code builds and calls a class: its ``__main__`` part, docstring examples,
tests and demos.

Straight-line code is read symbolically, so that ``m = Cls(cfg); x = torch.randn(2, 7, 32);
m(x, x)`` becomes ``Cls(cfg)`` and ``(x := torch.randn(2, 7, 32)), x``: two expressions that can be
evaluated on their own.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mha_lint.targets.imports import Imports, read_imports
from mha_lint.targets.source import Source, SourceError, parse, read_source
from mha_lint.targets.symbolic import (
    Block,
    arguments_text,
    call_arguments,
    free_names,
    inline,
    on_cpu,
)

PLACEMENT = frozenset({"to", "cuda", "cpu", "train", "eval", "requires_grad_"})
"""Methods of a module that say where or in which mode it is, which we decide ourselves."""

MOST_FILES = 12
MOST_BYTES = 300_000


@dataclass(frozen=True, slots=True)
class Usage:
    """One construction and, where there was one, the call of what it made.

    ``free``: names that the expressions take from the target's module. ``where``: "file.py:12".
    ``own``: it stands in the target's own file. ``doubtful``: the code around it expects that it may
    fail. ``imports``: dotted names of what the file imports of ``free``.
    """

    build: str
    call: str | None
    free: frozenset[str]
    arguments: int
    where: str
    own: bool = True
    doubtful: bool = False
    imports: tuple[tuple[str, str], ...] = ()


def find_usages(source: Source, name: str, *, beside: bool = True) -> list[Usage]:
    """Return how `source` and the tests and demos beside it use the class or function `name`.

    The best evidence first: calls before constructions alone, the file itself before others, more
    arguments before fewer. `beside`: read files near it too.
    """
    found = _Reader(source, name, own=True).usages()
    if beside and not any(usage.call for usage in found):
        for other in _files_beside(source, name):
            found += _Reader(other, name, own=False).usages()
    unique: dict[tuple[str, str | None], Usage] = {}
    for usage in found:
        unique.setdefault((usage.build, usage.call), usage)
    called = {usage.build for usage in found if usage.call is not None}
    kept = [u for u in unique.values() if u.call is not None or u.build not in called]
    return sorted(kept, key=_rank)


def _rank(usage: Usage) -> tuple[bool, int, bool]:
    """Order usages: calls first, then by arguments; one that is fed an earlier output wins."""
    call = usage.call or ""
    return usage.call is None, -usage.arguments, usage.build not in call


class _Reader:
    """Reads one file for usages of one name; ``own``: it is the file that defines the name."""

    def __init__(self, source: Source, name: str, *, own: bool) -> None:
        self.source, self.name, self.own = source, name, own
        self.imports: Imports = read_imports(source.tree, source.path)
        self.is_function = any(
            isinstance(n, ast.FunctionDef) and n.name == name for n in source.tree.body
        )
        self.found: list[Usage] = []
        self.doubtful = 0

    def usages(self) -> list[Usage]:
        """Return the usages in the order of the file, docstrings last."""
        top = Block()
        self._run(self.source.tree.body, top)
        wanted = self._names_of_target(top)
        for node in self.source.tree.body:
            inside = node.body if isinstance(node, ast.ClassDef) else [node]
            if getattr(node, "name", self.name) == self.name:
                continue
            for function in inside:
                if isinstance(function, ast.FunctionDef) and _mentions(function, wanted):
                    self._function(function, top)
        if self.own:
            self._docstrings(top)
        return self.found

    def _names_of_target(self, top: Block) -> set[str]:
        """Return the names that the target, or something made with it at the top level, goes by."""
        found = {self.name}
        found |= {n for n, d in self.imports.names.items() if d.rpartition(".")[2] == self.name}
        return found | {name for name, made in top.names.items() if _mentions(made, found)}

    def _function(self, node: ast.FunctionDef, top: Block) -> None:
        block = top.inner()
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        values: dict[str, ast.expr | None] = {a.arg: None for a in positional}
        with_default = positional[len(positional) - len(arguments.defaults) :]
        values |= {a.arg: d for a, d in zip(with_default, arguments.defaults, strict=True)}
        values |= {
            a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        }
        values |= dict(_parametrized(node))
        for name, value in values.items():
            block.bind(ast.Name(name, ast.Store()), value)
        self._run(node.body, block)

    def _docstrings(self, top: Block) -> None:
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for example in _examples(ast.get_docstring(node) or ""):
                    try:
                        tree = parse(example, self.source.path)
                    except SourceError:
                        continue
                    self.doubtful += 1  # documentation goes stale
                    self._run(tree.body, top.inner())
                    self.doubtful -= 1

    def _run(self, statements: list[ast.stmt], block: Block) -> None:
        for statement in statements:
            match statement:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    continue
                case ast.With(items=items) if any("raises" in ast.unparse(i) for i in items):
                    continue  # it shows what does not work
                case ast.If() | ast.With():
                    for item in getattr(statement, "items", []):
                        self._calls(item.context_expr, block)
                    self._run(statement.body, block)
                    self._run(getattr(statement, "orelse", []), block)
                case ast.Try():
                    self.doubtful += 1
                    self._run(statement.body, block)
                    self.doubtful -= 1
                case ast.For(target=target, iter=values):
                    self._calls(values, block)
                    block.bind(target, _first_of(values))
                    self._run(statement.body, block)
                case ast.Assign(targets=targets, value=value):
                    self._calls(value, block)
                    for target in targets:
                        block.bind(target, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._calls(value, block)
                    block.bind(target, value)
                case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                    block.bind(target, ast.BinOp(ast.Name(name, ast.Load()), op, value))
                case ast.AugAssign(target=ast.Subscript() | ast.Attribute() as target, op=op):
                    read = copy.deepcopy(target)
                    read.ctx = ast.Load()
                    block.bind(target, ast.BinOp(read, op, statement.value))
                case ast.Expr(value=ast.Call() as call):
                    self._calls(call, block)
                    block.effect_of(call)
                case _:
                    self._calls(statement, block)

    def _calls(self, node: ast.AST, block: Block) -> None:
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            if self._is_target(call.func):
                if self.is_function:
                    self._keep(ast.Name(self.name, ast.Load()), call, block)
                else:
                    self._keep(call, None, block)
            elif (made := self._made(call.func, block)) is not None:
                self._keep(made, call, block)

    def _is_target(self, node: ast.expr) -> bool:
        if self.own:
            return isinstance(node, ast.Name) and node.id == self.name
        dotted = self.imports.dotted(node)
        return dotted.rpartition(".")[2] == self.name and (
            dotted != self.name or "." in dotted or self.name in self.imports.names
        )

    def _made(self, function: ast.expr, block: Block) -> ast.expr | None:
        """Return the construction if `function` is (a name for) an instance of the class."""
        if isinstance(function, ast.Attribute) and function.attr == "forward":
            function = function.value
        whole = block.names.get(function.id) if isinstance(function, ast.Name) else function
        inner = whole
        while isinstance(inner, ast.Call) and not self._is_target(inner.func):
            if not isinstance(inner.func, ast.Attribute):
                return None
            inner = inner.func.value  # Cls(...).eval()
        return whole if isinstance(inner, ast.Call) else None

    def _keep(self, build: ast.expr, call: ast.Call | None, block: Block) -> None:
        arguments: str | None = None
        made = inline(build, block.names)
        if call is not None and (arguments := call_arguments(call, block.names)) is None:
            return
        if made is None:
            return
        text = ast.unparse(on_cpu(_unplaced(self._renamed(made))))
        if arguments is not None:
            arguments = arguments_text(on_cpu(ast.parse(f"f({arguments})", mode="eval").body))
        free = free_names(f"({text}, f({arguments or ''}))") - {"f"}
        if free & block.unknown:
            return
        count = 0 if call is None else len(call.args) + len(call.keywords)
        where = f"{Path(self.source.path).name}:{getattr(call or build, 'lineno', 0)}"
        known = self.imports.names
        imports = tuple((name, known[name]) for name in sorted(free & known.keys()))
        usage = Usage(text, arguments, free, count, where, self.own, self.doubtful > 0, imports)
        self.found.append(usage)

    def _renamed(self, expression: ast.expr) -> ast.expr:
        """Return `expression` with ``module.Cls`` or an alias of the class as the plain name."""
        if not self.own:
            for node in ast.walk(expression):
                if isinstance(node, ast.Call) and self._is_target(node.func):
                    node.func = ast.Name(self.name, ast.Load())
        return expression


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(
        (isinstance(n, ast.Name) and n.id in names)
        or (isinstance(n, ast.Attribute) and n.attr in names)
        for n in ast.walk(node)
    )


def _unplaced(expression: ast.expr) -> ast.expr:
    """Return `expression` without ``.to(device)``, ``.cuda()``, ``.train()`` and the like."""
    while (
        isinstance(expression, ast.Call)
        and isinstance(expression.func, ast.Attribute)
        and expression.func.attr in PLACEMENT
        and not any(word in ast.unparse(expression)[-40:] for word in ("float", "half", "dtype"))
    ):
        expression = expression.func.value
    return expression


def _first_of(values: ast.expr) -> ast.expr | None:
    match values:
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
            return first
        case ast.Call(func=ast.Name(id="range")):
            return ast.Constant(0)
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
            item = _first_of(inner)
            return None if item is None else ast.Tuple([ast.Constant(0), item], ast.Load())
        case _:
            return None


def _parametrized(node: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, first value) of ``pytest.mark.parametrize`` decorators."""
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[ast.Constant(value=str(names)), ast.List(elts=[first, *_]), *_],
            ):
                split = [name.strip() for name in names.split(",")]
                if len(split) == 1:
                    yield split[0], first
                elif isinstance(first, ast.Tuple | ast.List):
                    yield from zip(split, first.elts, strict=False)


def _examples(docstring: str) -> Iterator[str]:
    """Yield the doctest and fenced code blocks of a docstring."""
    prompts = [line.strip() for line in docstring.splitlines()]
    shown = [line[4:] for line in prompts if line.startswith((">>> ", "... "))]
    if shown:
        yield "\n".join(shown)
    for part in docstring.split("```")[1::2]:
        first, _, rest = part.partition("\n")
        if first.strip() in ("", "python", "py", "pycon"):
            yield rest


def _files_beside(source: Source, name: str) -> Iterator[Source]:
    """Yield the tests, demos and other files near `source` that mention `name`."""
    path = Path(source.path).absolute()
    folder, above = path.parent, path.parent.parent
    places = [folder, *(folder / part for part in ("tests", "test", "examples", "demo"))]
    places += [above / part for part in ("tests", "test", "examples", "scripts")]
    if (folder / "__init__.py").is_file():
        places.append(above)
    seen = 0
    for place in dict.fromkeys(places):
        for file in sorted(place.glob("*.py")) if place.is_dir() else ():
            if file == path or seen >= MOST_FILES:
                continue
            try:
                if not file.is_file():  # a pipe: reading it might never end
                    continue
                if file.stat().st_size > MOST_BYTES or name.encode() not in file.read_bytes():
                    continue
                seen += 1
                yield read_source(str(file))
            except (SourceError, OSError):
                continue
