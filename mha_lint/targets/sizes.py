"""The named numbers of a construction: constructor arguments by parameter name, config entries."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from mha_lint.targets.subject import Recipe


def sizes_of(bound: Mapping[str, Any]) -> dict[str, int]:
    """Return the integers (not bools) among the arguments of a construction, by name."""
    return {name: value for name, value in _numbers(bound) if type(value) is int}


def stated_of(bound: Mapping[str, Any]) -> dict[str, float | bool]:
    """Return every number and bool that was passed or has a default, by name."""
    return {name: value for name, value in _numbers(bound) if isinstance(value, int | float)}


def _numbers(bound: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in bound.items():
        if isinstance(value, int | float):
            yield name, value
        elif isinstance(value, dict):
            yield from ((k, v) for k, v in value.items() if isinstance(k, str))
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield f"{name}[{index}]", item
        elif value is not None and not isinstance(value, str | type | nn.Module):
            yield from _attributes(value)


def _attributes(value: Any, depth: int = 2) -> Iterator[tuple[str, Any]]:
    own: dict[str, Any] = {}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {f.name: _field(value, f.name) for f in dataclasses.fields(value)}
    elif hasattr(value, "__dict__"):
        defaults = {k: v for k, v in vars(type(value)).items() if isinstance(v, int | float)}
        own = {**defaults, **vars(value)}
    for name, item in own.items():
        if name.startswith("_"):
            continue
        if isinstance(item, int | float):
            yield name, item
        elif depth > 1 and hasattr(item, "__dict__") and not callable(item):
            yield from _attributes(item, depth - 1)


def _field(value: Any, name: str) -> Any:
    """Return a field of a dataclass; None where reading it raises, as of what each layer has its own."""
    try:
        return getattr(value, name, None)
    except Exception:  # whatever the user's own attribute access raises
        return None


def bound_arguments(recipe: Recipe, namespace: dict[str, Any]) -> dict[str, Any]:
    """Return what the outermost call of ``recipe.build`` passes, by parameter name."""
    try:
        call = outermost_call(ast.parse(recipe.build, mode="eval").body)
        if call is None:
            return {}
        made = eval(compile(ast.Expression(call.func), "<mha-lint>", "eval"), namespace)
        shown = ast.Call(ast.Name("__bind", ast.Load()), call.args, call.keywords)
        shown = ast.fix_missing_locations(ast.copy_location(shown, call))
        scope = {**namespace, "__bind": lambda *a, **k: (a, k)}
        args, kwargs = eval(compile(ast.Expression(shown), "<mha-lint>", "eval"), scope)
        bound = inspect.signature(made).bind(*args, **kwargs)
    except Exception:  # the construction itself worked: its numbers just stay unnamed
        return {}
    bound.apply_defaults()
    return dict(bound.arguments)


def outermost_call(tree: ast.expr) -> ast.Call | None:
    """Return the call that constructs, in ``Cls(...)`` or ``Cls(...).half()``."""
    while isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute):
        if not isinstance(tree.func.value, ast.Call):
            break
        tree = tree.func.value
    return tree if isinstance(tree, ast.Call) else None


def with_argument(build: str, parameters: Sequence[str], name: str, text: str) -> str | None:
    """Return `build` with the argument `name` of its outermost call set to the expression `text`.

    `parameters`: the names that its positional arguments fill. None: there is no such call.
    """
    tree = ast.parse(build, mode="eval")
    call = outermost_call(tree.body)
    if call is None:
        return None
    value = ast.parse(text, mode="eval").body
    if name in parameters[: len(call.args)]:
        call.args[parameters.index(name)] = value
    else:
        call.keywords = [k for k in call.keywords if k.arg != name]
        call.keywords.append(ast.keyword(name, value))
    return ast.unparse(ast.fix_missing_locations(tree))
