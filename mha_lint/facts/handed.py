"""A scale that a class is handed by its caller: its own source computes none of it."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources
from mha_lint.facts.readings import NEAR
from mha_lint.sites.site import Site

_LAYER = re.compile(r"(layer|block|depth)\w*(id|idx|index|num|number|nr|no|i)$|^depth$")


def handed_down(bench: Bench, site: Site, value: float, *, named: bool = False) -> str | None:
    """Return the attribute that holds the scale `value`, when the module's caller chose it.

    The caller is another class: what the user passes to the target itself is known as stated. The
    constructor keeps the argument as it is, or its inverse. `named`: the value is a known wrong
    one, which a caller may have computed; then only an entry of a configuration counts.
    """
    module = _owner(bench, site)
    if module is None:
        return None
    named |= module is bench.recording.module
    kept = {n for s in class_sources(type(module)) for n in _kept(s.node, entries=named)}
    for name, held in vars(module).items():
        number = _number(held)
        if name not in kept or not number:
            continue
        if any(math.isclose(abs(value), abs(x), rel_tol=NEAR) for x in (number, 1 / number)):
            return name
    return None


def configured_as_one(bench: Bench, site: Site) -> str | None:
    """Return the attribute that a configuration sets to 1.0 and the scores are multiplied by.

    A multiplier among the hyperparameters (Granite's) is meant, whatever its value is.
    """
    first = site.all[0]
    module = _owner(bench, site)
    if module is None or first.q is None or first.q.source is None:
        return None
    between = bench.dependence.between
    path = (
        *between(first.q.source.node, first.q.node),
        *between(first.scores, first.normaliser.logits),
    )
    if not any(isinstance(a, float) and a == 1.0 for n in path for a in n.args):
        return None
    kept = {n for s in class_sources(type(module)) for n in _kept(s.node, entries=True)}
    held = vars(module)
    return next((n for n in sorted(kept) if isinstance(v := held.get(n), float) and v == 1.0), None)


def _owner(bench: Bench, site: Site) -> nn.Module | None:
    return bench.recording.modules.get(str(site.context.meta.get("module", "")))


def by_layer(bench: Bench, site: Site, ratio: float) -> str | None:
    """Return the module's own layer number when the scale is `ratio` = 1/number of what is due.

    Deeper layers with smaller scores are a design (GPT-2's scale_attn_by_inverse_layer_idx).
    """
    module = _owner(bench, site)
    if module is None:
        return None
    for name, held in vars(module).items():
        if type(held) is int and held > 0 and _LAYER.search(name):
            for text, number in ((name, held), (f"({name} + 1)", held + 1)):
                if number > 1 and math.isclose(ratio, 1 / number, rel_tol=NEAR):
                    return f"1/{text}"
    return None


def _number(held: object) -> float:
    """Return the fraction that `held` is, 0 for anything else: whole numbers are sizes."""
    if isinstance(held, Tensor) and held.numel() == 1 and not held.is_meta:
        held = held.item()
    return held if isinstance(held, float) and not held.is_integer() else 0.0


def _kept(node: ast.AST, *, entries: bool) -> Iterator[str]:
    """Yield the attributes that a constructor sets to one of its arguments, or to its inverse.

    An entry of an argument (``config.multiplier``) counts as well; with `entries` nothing else does.
    """
    for function in ast.walk(node):
        if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
            continue
        arguments = function.args
        names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        names -= {"self"}
        for target, value in _assigned(function):
            chosen = [c for c in _choices(value) if _root(c) in names]
            if any(not entries or not isinstance(c, ast.Name) for c in chosen):
                yield target.attr


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """Yield each attribute that is assigned to with its value, ``self.a, self.b = x, y`` by pairs."""
    for one in ast.walk(function):
        if not isinstance(one, ast.Assign):
            continue
        for target in one.targets:
            match target, one.value:
                case ast.Attribute(), value:
                    yield target, value
                case ast.Tuple(elts=left), ast.Tuple(elts=right) if len(left) == len(right):
                    pairs = zip(left, right, strict=True)
                    yield from ((a, b) for a, b in pairs if isinstance(a, ast.Attribute))


def _root(expression: ast.expr) -> str:
    match expression:
        case ast.Attribute(value=value) | ast.Subscript(value=value):
            return _root(value)
    return expression.id if isinstance(expression, ast.Name) else ""


def _choices(expression: ast.expr) -> Iterator[ast.expr]:
    match expression:
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield expression
        case ast.BoolOp():
            for part in expression.values:
                yield from _choices(part)
        case ast.IfExp():
            yield from _choices(expression.body)
            yield from _choices(expression.orelse)
        case ast.BinOp(left=ast.Constant(), op=ast.Div(), right=right):
            yield from _choices(right)
        case _:
            return
