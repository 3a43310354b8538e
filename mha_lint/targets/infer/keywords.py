"""Inputs that a forward takes by ``**kwargs`` and reads out of them."""

from __future__ import annotations

import ast
from typing import Any

from mha_lint.targets.infer.bodies import function_tree


def asked_keywords(function: Any) -> list[str]:
    """Return the names that a function reads out of its ``**kwargs`` and that have to be there."""
    tree = function_tree(function)
    if tree is None or tree.args.kwarg is None:
        return []
    held, asked, tested = tree.args.kwarg.arg, [], set()
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(
                value=ast.Name(id=name), slice=ast.Constant(value=str(key)), ctx=ast.Load()
            ) if name == held:
                asked.append(key)
            case ast.Subscript(
                value=ast.Name(id=name), slice=ast.Constant(value=str(key)), ctx=ast.Store()
            ) if name == held:
                tested.add(key)
            case ast.Compare(
                left=ast.Constant(value=str(key)), comparators=[ast.Name(id=name)]
            ) if name == held:
                tested.add(key)
            case _:
                pass
    return [key for key in dict.fromkeys(asked) if key not in tested and key.isidentifier()]
