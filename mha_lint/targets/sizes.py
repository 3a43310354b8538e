"""The named numbers of a construction: constructor arguments by parameter name, config entries."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from mha_lint.targets.subject import Recipe
from mha_lint.targets.words import words

CONFIG_NAMES = words("config cfg conf args hparams hp params opt opts options settings spec")


def sizes_of(
    module: nn.Module | Callable[..., Any], recipe: Recipe, namespace: dict[str, Any]
) -> dict[str, int]:
    """Return the integers (not bools) of the construction that `recipe` states, by name."""
    return {
        name: value for name, value in _numbers(module, recipe, namespace) if type(value) is int
    }


def stated_of(
    module: nn.Module | Callable[..., Any], recipe: Recipe, namespace: dict[str, Any]
) -> dict[str, float | bool]:
    """Return every number and bool that was passed or has a default, by name."""
    return {
        name: value
        for name, value in _numbers(module, recipe, namespace)
        if isinstance(value, int | float)
    }


def _numbers(
    module: nn.Module | Callable[..., Any], recipe: Recipe, namespace: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    bound = bound_arguments(module, recipe, namespace)
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
        own = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
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


def bound_arguments(
    module: nn.Module | Callable[..., Any], recipe: Recipe, namespace: dict[str, Any]
) -> dict[str, Any]:
    """Return what the outermost call of ``recipe.build`` passes, by parameter name."""
    try:
        tree = ast.parse(recipe.build, mode="eval").body
        while isinstance(tree, ast.Call) and isinstance(tree.func, ast.Attribute):
            if isinstance(tree.func.value, ast.Call):  # Cls(...).half()
                tree = tree.func.value
            else:
                break
        if not isinstance(tree, ast.Call):
            return {}
        made = eval(compile(ast.Expression(tree.func), "<mha-lint>", "eval"), namespace)
        shown = ast.Call(ast.Name("__bind", ast.Load()), tree.args, tree.keywords)
        shown = ast.fix_missing_locations(ast.copy_location(shown, tree))
        scope = {**namespace, "__bind": lambda *a, **k: (a, k)}
        args, kwargs = eval(compile(ast.Expression(shown), "<mha-lint>", "eval"), scope)
        bound = inspect.signature(made).bind(*args, **kwargs)
    except Exception:  # the construction itself worked: its numbers just stay unnamed
        return {}
    bound.apply_defaults()
    return dict(bound.arguments)
