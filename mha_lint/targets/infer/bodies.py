"""What the body of a constructor does with its parameters and with the entries of a config.

A *reference* is a parameter, or an attribute or item of it: ``dim``, ``config.n_embd``,
``cfg["heads"]`` are written "dim", "config.n_embd", "cfg.heads".
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from mha_lint.targets.infer.uses import KEYWORDS, MADE_OF_SIZES, OF_VALUES, TAKES, Evidence
from mha_lint.targets.infer.vocabulary import Role
from mha_lint.targets.source import Source, SourceError, cached_source

Function = ast.FunctionDef | ast.AsyncFunctionDef

_OVER_ITEMS = frozenset({"len", "enumerate", "sum", "sorted", "max", "min", "reversed"})
"""What only a list, a tuple or a table can be handed to, alone."""

DEEPEST = 4
"""Constructors that are followed from one class into the parts it makes."""


@functools.lru_cache(maxsize=32)
def _functions(source: Source) -> dict[tuple[str, int], Function]:
    found: dict[tuple[str, int], Function] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found[node.name, first] = node
    return found


def function_tree(function: Any) -> Function | None:
    """Return the parsed definition of a function of the user, or None."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    try:
        source = cached_source(code.co_filename)
    except SourceError:
        return None
    return _functions(source).get((code.co_name, code.co_firstlineno))


def _runs(made: Any) -> Any:
    """Return the function that runs when `made`, a class or function, is called."""
    return getattr(made, "__init__", None) if isinstance(made, type) else made


def constructor_evidence(made: Any) -> Mapping[str, Evidence]:
    """Return the evidence on every reference in the constructor of the class `made`."""
    held, found = _LAST.get(id(made), (None, {}))
    if held is not made:
        found = {}
        _Walk(found, made, 0).constructor({})
        if len(_LAST) >= _MOST:
            _LAST.clear()
        _LAST[id(made)] = made, found
    return found


_MOST = 16
_LAST: dict[int, tuple[Any, Mapping[str, Evidence]]] = {}
"""What was asked last, by identity: the hash of a user's class may be code of theirs."""


class _Walk:
    """Follows the parameters of one class, or function, through its body."""

    def __init__(
        self, found: dict[str, Evidence], made: Any, depth: int, *, open: bool = True
    ) -> None:
        self.found, self.made, self.depth, self.open = found, made, depth, open

    def constructor(self, given: dict[str, str]) -> dict[str, str]:
        """Walk ``__init__`` (then the other methods, for ``self.config`` and the like).

        `given`: parameter name -> reference outside; empty at the outermost level. Returns the
        attributes that hold references.
        """
        init = function_tree(_runs(self.made))
        if init is None:
            return {}
        arguments = init.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        own = names[1:] if isinstance(self.made, type) else names
        aliases = {n: given.get(n, n) for n in own if not self.depth or n in given}
        self._body(init, aliases, inside=True)
        if not isinstance(self.made, type):
            return {}
        held = {k: v for k, v in aliases.items() if k.startswith("self.")}
        for name, method in vars(self.made).items():
            tree = function_tree(method) if name != "__init__" else None
            if tree is not None and held:
                self._body(tree, dict(held), inside=False)
        return held

    def _body(self, body: Function, aliases: dict[str, str], *, inside: bool) -> None:
        for node in ast.walk(body):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(target, node.value, aliases)
        for node in ast.walk(body):
            self._look(node, aliases, inside=inside)

    def _bind(self, target: ast.expr, value: ast.expr, aliases: dict[str, str]) -> None:
        match target, value:
            case (ast.Tuple(elts=targets), ast.Tuple(elts=values)) if len(targets) == len(values):
                for inner, item in zip(targets, values, strict=True):
                    self._bind(inner, item, aliases)
            case (ast.Tuple(elts=targets), _) if ref := self._reference(value, aliases):
                self._of(ref).length = max(self._of(ref).length, len(targets))
                for index, inner in enumerate(targets if ref.endswith("()") else ()):
                    aliases.setdefault(ast.unparse(inner), f"{ref}[{index}]")
                    self._of(f"{ref}[{index}]").names.append(ast.unparse(inner))
            case (ast.Name() | ast.Attribute(), _) if ref := self._reference(value, aliases):
                aliases.setdefault(ast.unparse(target), ref)
                self._of(ref).names.append(ast.unparse(target))

    def _reference(self, node: ast.expr, aliases: dict[str, str]) -> str | None:
        match node:
            case ast.Name(id=name):
                return aliases.get(name)
            case ast.Attribute(value=owner, attr=attribute):
                if (known := aliases.get(ast.unparse(node))) is not None:
                    return known
                return self._entry(owner, attribute, "attribute", aliases)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(key))):
                return self._entry(owner, key, "item", aliases)
            case ast.Call(
                func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(key)), *_]
            ):
                how = "get" if len(node.args) > 2 else "attribute"
                return self._entry(owner, key, how, aliases)
            case ast.Call(
                func=ast.Attribute(value=owner, attr="get"), args=[ast.Constant(value=str(key)), *_]
            ):
                return self._entry(owner, key, "get", aliases)
            case ast.Call(func=ast.Name(id="int" | "float"), args=[inner]):
                return self._reference(inner, aliases)
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method not in OF_VALUES:
                if (ref := self._entry(owner, method, "method", aliases)) is not None:
                    self._of(f"{ref}()")
                    return f"{ref}()"
                return None
            case ast.Subscript(value=owner, slice=ast.Name()) if isinstance(owner, ast.Attribute):
                if (ref := self._reference(owner, aliases)) is not None:
                    self._of(ref).table = True
                    return f"{ref}[]"
                return None
            case ast.Subscript(value=owner, slice=ast.Slice()):
                return self._reference(owner, aliases)  # a part of a table is one too
            case ast.BoolOp(values=values):
                refs = [r for v in values if (r := self._reference(v, aliases)) is not None]
                return refs[0] if refs else None
            case _:
                return None

    def _entry(self, owner: ast.expr, name: str, how: str, aliases: dict[str, str]) -> str | None:
        ref = self._reference(owner, aliases)
        if ref is None:
            return None
        self._of(ref).entries.setdefault(name, set()).add(how)
        return f"{ref}.{name}"

    def _of(self, ref: str) -> Evidence:
        return self.found.setdefault(ref, Evidence())

    def _look(self, node: ast.AST, aliases: dict[str, str], *, inside: bool) -> None:
        match node:
            case ast.Call():
                self._call(node, aliases, inside=inside)
                if isinstance(node.func, ast.Attribute):
                    self._reference(node, aliases)  # notes what an object is asked for
            case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod(), right=right):
                if whole := self._reference(left, aliases):
                    self._of(whole).divided = True
                if whole and (ref := self._reference(right, aliases)):
                    self._of(ref).divides = True
                    self._of(ref).wholes.add(whole)
            case ast.BoolOp(op=ast.Or(), values=[first, *_]):
                if ref := self._reference(first, aliases):
                    self._of(ref).optional = True
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                for one, other in ((left, right), (right, left)):
                    if isinstance(one, ast.List) and (ref := self._reference(other, aliases)):
                        self._of(ref).iterated = True
            case ast.Compare(left=left, ops=[how], comparators=[right]):
                self._compare(left, how, right, aliases)
            case ast.If(test=test) | ast.IfExp(test=test):
                plain = test.operand if isinstance(test, ast.UnaryOp) else test
                if ref := self._reference(plain, aliases):
                    self._of(ref).tested = True
            case (
                ast.For(target=target, iter=values) | ast.comprehension(target=target, iter=values)
            ):
                if ref := self._reference(values, aliases):
                    self._of(ref).iterated = True
                    if isinstance(target, ast.Tuple):
                        self._of(ref).items = len(target.elts)
            case ast.Subscript(value=owner, slice=ast.Constant(value=int(index))):
                if ref := self._reference(owner, aliases):
                    self._of(ref).length = max(self._of(ref).length, index + 1)
            case ast.Subscript(value=ast.Name(id=table), slice=index) if table not in aliases:
                if ref := self._reference(index, aliases):
                    self._of(ref).choices += _text_keys(self._scope().get(table))
            case ast.Subscript(value=ast.Dict(keys=keys), slice=index):
                if ref := self._reference(index, aliases):
                    self._of(ref).choices += [
                        k.value
                        for k in keys
                        if isinstance(k, ast.Constant) and isinstance(k.value, str)
                    ]
            case ast.Attribute() | ast.Subscript(slice=ast.Constant(value=str())):
                self._reference(node, aliases)  # notes what is read of a config
            case _:
                pass

    def _compare(
        self, left: ast.expr, how: ast.cmpop, right: ast.expr, aliases: dict[str, str]
    ) -> None:
        member = isinstance(how, ast.In | ast.NotIn) and not isinstance(left, ast.Constant)
        if member and (ref := self._reference(right, aliases)):
            self._of(ref).iterated = True
        if (ref := self._reference(left, aliases)) is None:
            return
        if isinstance(right, ast.Constant) and right.value is None:
            self._of(ref).optional = True
        if isinstance(right, ast.Attribute) and isinstance(right.value, ast.Name):
            named = getattr(self._scope().get(right.value.id), right.attr, None)
            if isinstance(named, enum.Enum):
                self._of(ref).members.append(named)
        items = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else [right]
        self._of(ref).choices += [
            i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)
        ]

    def _call(self, call: ast.Call, aliases: dict[str, str], *, inside: bool) -> None:
        if (ref := self._reference(call.func, aliases)) is not None and (
            ref.count(".") == 0 or ast.unparse(call.func) in aliases
        ):
            if inside:
                self._of(ref).calls.append(len(call.args))
            else:
                self._of(ref).used_as_module = True
                names = tuple(sorted(k.arg for k in call.keywords if k.arg))
                if not any(isinstance(a, ast.Starred) for a in call.args):
                    self._of(ref).taken.add((len(call.args), names))
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if (
            name in _OVER_ITEMS
            and len(call.args) == 1
            and (ref := self._reference(call.args[0], aliases))
        ):
            self._of(ref).iterated = True
        if (
            name == "from_pretrained"
            and call.args
            and (ref := self._reference(call.args[0], aliases))
        ):
            self._of(f"{ref}.shape").length = 2  # the weights of an embedding
        if name == "from_numpy" and call.args and (ref := self._reference(call.args[0], aliases)):
            self._of(ref).array = True
        self._member_or_kind(call, name, aliases)
        takes = TAKES.get(name, ())
        for index, argument in enumerate(call.args):
            if ref := self._reference(argument, aliases):
                role = takes[index] if index < len(takes) else None
                if role is None and name in MADE_OF_SIZES:
                    role = Role.WIDTH if index == len(call.args) - 1 and index else Role.LENGTH
                self._note(ref, role)
        if name in ("view", "reshape") and len(call.args) >= 4:
            for argument in call.args[1:3]:  # view(b, t, heads, d), view(b, heads, t, d)
                if ref := self._reference(argument, aliases):
                    self._note(ref, Role.HEADS)
        for keyword in call.keywords:
            ref = self._reference(keyword.value, aliases)
            if ref is not None and name == "rearrange" and keyword.arg in ("h", "heads"):
                self._note(ref, Role.HEADS)
            if ref is not None and keyword.arg in KEYWORDS and name in TAKES:
                self._note(ref, KEYWORDS[keyword.arg])
        if name == "meshgrid":
            for side in (a for c in ast.walk(call) if isinstance(c, ast.Call) for a in c.args):
                if ref := self._reference(side, aliases):
                    self._note(ref, Role.WINDOW)
        if name in ("tril", "triu"):
            for inner in ast.walk(call):
                if isinstance(inner, ast.expr) and (ref := self._reference(inner, aliases)):
                    self._note(ref, Role.LENGTH)
        self._follow(call, name, aliases)

    def _member_or_kind(self, call: ast.Call, name: str, aliases: dict[str, str]) -> None:
        """Note the members of the enum that `call` looks up, or the class that it tests for."""
        if not call.args or (ref := self._reference(call.args[0], aliases)) is None:
            return
        kind = self._scope().get(name) if isinstance(call.func, ast.Name) else None
        if isinstance(kind, enum.EnumMeta) and len(call.args) == 1:
            members: list[Any] = [value.value for value in vars(kind)["_member_map_"].values()]
            self._of(ref).choices += [v for v in members if isinstance(v, str)]
        if name == "isinstance" and len(call.args) == 2:
            for one in ast.walk(call.args[1]):
                if isinstance(one, ast.Attribute | ast.Name):
                    self._of(ref).kinds.append(ast.unparse(one).rpartition(".")[2])

    def _note(self, ref: str, role: Role | None) -> None:
        if role is not None:
            self._of(ref).roles.append(role)

    def _follow(self, call: ast.Call, name: str, aliases: dict[str, str]) -> None:
        """Follow references into the constructors of the parts, and into helper functions."""
        if self.depth >= DEEPEST:
            return
        refs = [self._reference(a, aliases) for a in call.args]
        keywords = {k.arg: self._reference(k.value, aliases) for k in call.keywords if k.arg}
        of_base = isinstance(call.func, ast.Attribute) and name == "__init__"
        further = of_base and self.open and any(k.arg is None for k in call.keywords)
        if not further and not any(refs) and not any(keywords.values()):
            return
        made = self._called(call, name)
        if made is None:
            return
        tree = function_tree(_runs(made))
        if tree is None:
            return
        names = [a.arg for a in (*tree.args.posonlyargs, *tree.args.args)]
        explicit = of_base and bool(call.args) and ast.unparse(call.args[0]) == "self"
        if (isinstance(made, type) or isinstance(call.func, ast.Attribute)) and not explicit:
            names = names[1:]
        given = {n: r for n, r in zip(names, refs, strict=False) if r is not None}
        given |= {n: r for n, r in keywords.items() if r is not None}
        if further:  # **kwargs: whatever else the base takes is a parameter of the whole
            left = [*names[len(refs) :], *(a.arg for a in tree.args.kwonlyargs)]
            given |= {n: n for n in left if n not in keywords and n not in aliases and n != "self"}
        walk = _Walk(self.found, made, self.depth + 1, open=further)
        held = walk.constructor(given)
        if of_base:
            aliases.update({k: v for k, v in held.items() if k not in aliases})

    def _scope(self) -> dict[str, Any]:
        return getattr(inspect.unwrap(_runs(self.made)), "__globals__", {})

    def _called(self, call: ast.Call, name: str) -> Any:
        scope = self._scope()
        match call.func:
            case ast.Attribute(value=ast.Name(id=base), attr="__init__") if base in scope:
                made = scope[base]  # Base.__init__(self, ...)
            case ast.Attribute(attr="__init__") if isinstance(self.made, type):  # super()
                made = _next_with_constructor(self.made)
            case ast.Name():
                made = scope.get(name)
            case ast.Attribute(value=ast.Name(id="self")):
                made = inspect.getattr_static(self.made, name, None)
            case _:
                made = None
        return made if isinstance(made, type | FunctionType) else None


def _next_with_constructor(made: type) -> Any:
    """Return the class whose constructor ``super().__init__`` runs in the one of `made`."""
    owners = [b for b in made.__mro__ if "__init__" in vars(b)]
    return owners[1] if len(owners) > 1 else None


def _text_keys(table: Any) -> list[str]:
    """Return the keys of a table of the user that are texts."""
    return [key for key in table if isinstance(key, str)] if isinstance(table, dict) else []
