"""Straight-line code read symbolically: every name stands for the expression that made it."""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass, field

from mha_lint.targets.words import words

LARGEST = 600
"""Nodes beyond which an expression is given up: it is no longer something to show anybody."""


CHANGING_METHODS = words(
    """append extend insert update setdefault add pop remove clear load_state_dict"""
)
"""Methods, besides those that end in ``_``, that change their object."""


@dataclass(slots=True)
class Block:
    """Statements in a row. ``names``: what names stand for; ``unknown``: names without a known
    value.
    """

    names: dict[str, ast.expr] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    def inner(self) -> Block:
        """Return a copy for the body of a function."""
        return Block(dict(self.names), set(self.unknown))

    def bind(self, target: ast.expr, value: ast.expr | None) -> None:
        """Let `target` stand for `value` (None: for something unknown)."""
        match target:
            case ast.Name(id=name):
                self.unknown.discard(name)
                resolved = inline(value, self.names) if value is not None else None
                if resolved is None:
                    self.unknown.add(name)
                    self.names.pop(name, None)
                else:
                    self.names[name] = resolved
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for inner, item in zip(targets, _items(value, len(targets)), strict=True):
                    self.bind(inner, item)
            case ast.Attribute(value=owner, attr=attribute):
                new = value or ast.Name("_unknown", ast.Load())
                self.change(owner, _call("setattr", owner, ast.Constant(attribute), new))
            case ast.Subscript(value=owner, slice=index):
                new = value or ast.Name("_unknown", ast.Load())
                setter = ast.Attribute(owner, "__setitem__", ast.Load())
                self.change(owner, ast.Call(setter, [_index(index), new], []))

    def change(self, owner: ast.expr, effect: ast.expr) -> None:
        """Note that the expression `effect` changes the object that `owner` is, or is part of.

        The name then stands for ``[name := made, effect, ...][0]``, still a single expression.
        """
        while isinstance(owner, ast.Attribute | ast.Subscript):
            owner = owner.value
        if not isinstance(owner, ast.Name) or owner.id not in self.names:
            return
        name, made = owner.id, self.names[owner.id]
        rest = inline(effect, {k: v for k, v in self.names.items() if k != name})
        if rest is None or not _makes_object(made):
            self.bind(owner, None)
            return
        match made:
            case ast.Subscript(
                value=ast.List(elts=[ast.NamedExpr(target=ast.Name(id=bound)), *_] as steps)
            ) if bound == name:
                steps = [*steps, rest]
            case _:
                steps = [ast.NamedExpr(ast.Name(name, ast.Store()), made), rest]
        first = ast.Subscript(ast.List(steps, ast.Load()), ast.Constant(0), ast.Load())
        self.names[name] = ast.fix_missing_locations(first)

    def effect_of(self, call: ast.Call) -> None:
        """Note what a bare call such as ``mask.fill_(0)`` or ``cfg.update(...)`` changes."""
        if isinstance(call.func, ast.Attribute):
            method = call.func.attr
            in_place = method.endswith("_") and not method.startswith("_")
            if in_place or method in CHANGING_METHODS:
                self.change(call.func.value, call)


def inline(expression: ast.expr, names: dict[str, ast.expr]) -> ast.expr | None:
    """Return a copy of `expression` with `names` replaced; None if it grows too large."""
    result = _Inliner(names).visit(copy.deepcopy(expression))
    return _bounded(result)


def call_arguments(call: ast.Call, names: dict[str, ast.expr]) -> str | None:
    """Return the arguments of `call` as text, `names` replaced.

    A tensor that is passed more than once stays one tensor: it is bound by ``:=`` where it first
    occurs, as self-attention called with (x, x, x) must not become cross-attention.
    """
    counts: dict[str, int] = {}
    for value in [*call.args, *(k.value for k in call.keywords)]:
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and node.id in names:
                counts[node.id] = counts.get(node.id, 0) + 1
    shared = {name for name, count in counts.items() if count > 1 and _makes_object(names[name])}
    plain = ast.Call(ast.Name("f", ast.Load()), call.args, call.keywords)
    result = _bounded(_Inliner(names, shared).visit(copy.deepcopy(plain)))
    return None if result is None else arguments_text(result)


def arguments_text(call: ast.expr) -> str:
    """Return what stands between the parentheses of the call ``f(...)``."""
    return ast.unparse(ast.fix_missing_locations(call))[2:-1]


def free_names(text: str) -> frozenset[str]:
    """Return the names that the expression `text` reads and does not bind itself."""
    nodes = [n for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)]
    stored = {n.id for n in nodes if isinstance(n.ctx, ast.Store)}
    return frozenset({n.id for n in nodes} - stored)


def on_cpu(expression: ast.expr) -> ast.expr:
    """Return `expression` with ``.cuda()`` left out and "cuda" devices replaced."""
    result = _OnCpu().visit(expression)
    assert isinstance(result, ast.expr)
    return result


def _items(value: ast.expr | None, count: int) -> list[ast.expr | None]:
    if value is None:
        return [None] * count
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == count:
        return list(value.elts)
    return [ast.Subscript(value, ast.Constant(i), ast.Load()) for i in range(count)]


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _index(index: ast.expr) -> ast.expr:
    """Return a subscript as an argument: ``1:3`` becomes ``slice(1, 3)``."""
    match index:
        case ast.Slice(lower=lower, upper=upper, step=step):
            parts = [part or ast.Constant(None) for part in (lower, upper, step)]
            return _call("slice", *parts)
        case ast.Tuple(elts=parts):
            return ast.Tuple([_index(part) for part in parts], ast.Load())
        case _:
            return index


def _bounded(result: ast.AST) -> ast.expr | None:
    assert isinstance(result, ast.expr)
    if sum(1 for _ in ast.walk(result)) > LARGEST:
        return None
    return ast.fix_missing_locations(result)


def _makes_object(expression: ast.expr) -> bool:
    made = (ast.Call, ast.Dict, ast.List, ast.DictComp, ast.ListComp)
    return any(isinstance(n, made) for n in ast.walk(expression))


class _Inliner(ast.NodeTransformer):
    def __init__(self, names: dict[str, ast.expr], shared: set[str] | None = None) -> None:
        self.names, self.shared, self.bound = names, shared or set(), set[str]()

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id not in self.names:
            return node
        if node.id in self.bound:
            return node
        value = copy.deepcopy(self.names[node.id])
        if node.id in self.shared:
            self.bound.add(node.id)
            return ast.NamedExpr(ast.Name(node.id, ast.Store()), value)
        return value

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> ast.AST:
        bound = {
            n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)
        }
        hidden = {name: self.names.pop(name) for name in bound & self.names.keys()}
        self.generic_visit(node)
        self.names.update(hidden)
        return node

    visit_ListComp = _comprehension
    visit_GeneratorExp = _comprehension
    visit_SetComp = _comprehension


class _OnCpu(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            return node.func.value
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and re.fullmatch(r"(cuda|mps|xpu)(:\d+)?", node.value):
            return ast.copy_location(ast.Constant("cpu"), node)
        return node


def apart(arguments: str) -> str:
    """Return call arguments with random tensors that are passed twice made separately.

    ``(x := torch.randn(2, 7, 8)), x`` becomes ``torch.randn(2, 7, 8), torch.randn(2, 7, 8)``: three
    inputs that are one tensor cannot show which of them is read.
    """
    call = ast.parse(f"f({arguments})", mode="eval").body
    shared = {
        node.target.id: node.value
        for node in ast.walk(call)
        if isinstance(node, ast.NamedExpr) and "torch.rand" in ast.unparse(node.value)
    }
    if not shared:
        return arguments
    result = _Apart(shared).visit(call)
    assert isinstance(result, ast.expr)
    return arguments_text(result)


class _Apart(ast.NodeTransformer):
    def __init__(self, shared: dict[str, ast.expr]) -> None:
        self.shared = shared

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        if node.target.id in self.shared:
            return copy.deepcopy(self.shared[node.target.id])
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.shared:
            return copy.deepcopy(self.shared[node.id])
        return node
