"""A scale that a class is handed by its caller: its own source computes none of it."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from torch import Tensor, nn

from mha_lint.facts.bench import Bench
from mha_lint.facts.classes import class_sources
from mha_lint.facts.readings import NEAR
from mha_lint.sites.site import Site


def handed_down(bench: Bench, site: Site, value: float) -> str | None:
    """Return the attribute that holds the scale `value`, when the module's caller chose it.

    The caller is another class: what the user passes to the target itself is known as stated. The
    constructor keeps the argument as it is, or its inverse.
    """
    root = bench.recording.module
    path = str(site.context.meta.get("module", ""))
    if not isinstance(root, nn.Module) or not path:
        return None
    module = dict(root.named_modules()).get(path)
    if module is None:
        return None
    kept = {name for source in class_sources(type(module)) for name in _kept(source.node)}
    for name, held in vars(module).items():
        number = _number(held)
        if name not in kept or not number:
            continue
        if any(math.isclose(abs(value), abs(x), rel_tol=NEAR) for x in (number, 1 / number)):
            return name
    return None


def _number(held: object) -> float:
    """Return the fraction that `held` is, 0 for anything else: whole numbers are sizes."""
    if isinstance(held, Tensor) and held.numel() == 1 and not held.is_meta:
        held = held.item()
    return held if isinstance(held, float) and not held.is_integer() else 0.0


def _kept(node: ast.AST) -> Iterator[str]:
    """Yield the attributes that a constructor sets to one of its arguments, or to its inverse."""
    for function in ast.walk(node):
        if not isinstance(function, ast.FunctionDef) or function.name != "__init__":
            continue
        arguments = function.args
        names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        for one in ast.walk(function):
            if not isinstance(one, ast.Assign) or not names & set(_choices(one.value)):
                continue
            yield from (t.attr for t in one.targets if isinstance(t, ast.Attribute))


def _choices(expression: ast.expr) -> Iterator[str]:
    match expression:
        case ast.Name():
            yield expression.id
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
