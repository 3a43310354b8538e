"""Flags that switch attention on: without them a call runs past it."""

from __future__ import annotations

import ast
import re
from typing import Any

from mha_lint.targets.infer.bodies import function_tree

_ATTENDS = re.compile(r"softmax|attention|attn|scaled_dot|multihead", re.IGNORECASE)


def waking_flags(made: Any) -> frozenset[str]:
    """Return the flags of a class whose ``forward`` attends only where they are true.

    Empty where ``forward`` attends whatever the flags are. Names are hints here, as for all guesses:
    whether there is attention the recording tells.
    """
    forward = _method(made, "forward") if isinstance(made, type) else None
    if forward is None:
        return frozenset()
    guarded: dict[str, str] = {}
    rest: list[str] = []
    _split(forward.body, guarded, rest)
    if _attends(made, "\n".join(rest)):
        return frozenset()
    return frozenset(flag for flag, text in guarded.items() if _attends(made, text))


def _split(statements: list[ast.stmt], guarded: dict[str, str], rest: list[str]) -> None:
    """Part `statements` into what stands under a flag, by its name, and what does not."""
    for statement in statements:
        match statement:
            case ast.If(test=ast.Attribute(value=ast.Name(id="self"), attr=flag), body=body):
                inside = "\n".join(map(ast.unparse, body))
                guarded[flag] = f"{guarded.get(flag, '')}\n{inside}"
                _split(statement.orelse, guarded, rest)
            case ast.If() | ast.For() | ast.While():
                _split([*statement.body, *statement.orelse], guarded, rest)
            case ast.With() | ast.Try():
                _split(statement.body, guarded, rest)
            case _:
                rest.append(ast.unparse(statement))


def _attends(made: Any, text: str) -> bool:
    """Tell whether `text`, or a method of `made` that it calls, seems to attend."""
    called = [_method(made, name) for name in re.findall(r"self\.(\w+)\(", text)]
    texts = [text, *(ast.unparse(tree) for tree in called if tree is not None)]
    return any(_ATTENDS.search(part) for part in texts)


def _method(made: Any, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    return function_tree(getattr(made, name, None))
