"""What a class or function takes, with what it passes on to the constructors of its bases."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator
from typing import Any

from torch import nn

from mha_lint.targets.infer.bodies import function_tree


def parameters_of(made: Any) -> Iterator[inspect.Parameter]:
    """Yield the parameters that `made` takes, ``*args`` and ``**kwargs`` left out.

    In place of ``**kwargs`` that are passed on, those without a default of the base's constructor.
    """
    try:
        parameters = list(inspect.signature(made).parameters.values())
    except (TypeError, ValueError):
        return
    passed_on = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if isinstance(made, type) and parameters and all(p.kind in passed_on for p in parameters):
        inits = [b for b in made.__mro__ if "__init__" in vars(b)]  # __init__(*args, **kwargs)
        if len(inits) > 1 and inits[1] is not object:
            parameters = list(inspect.signature(inits[1]).parameters.values())
    elif isinstance(made, type):
        known = {p.name for p in parameters}
        more = [p for p in _of_bases(made) if p.name not in known]
        parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in more]
    for parameter in parameters:
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            yield parameter


def _of_bases(made: type) -> list[inspect.Parameter]:
    """Return what ``super().__init__(..., **kwargs)`` in `made` must still be given."""
    owners = [b for b in made.__mro__ if "__init__" in vars(b)]
    found: list[inspect.Parameter] = []
    passed: set[str] = set()
    for owner, base in itertools.pairwise(owners):
        tree = function_tree(vars(owner)["__init__"])
        if tree is None or tree.args.kwarg is None or base in (object, nn.Module):
            break
        kwargs = tree.args.kwarg.arg
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "__init__"
            and any(k.arg is None and ast.unparse(k.value) == kwargs for k in node.keywords)
        ]
        if len(calls) != 1:
            break
        call = calls[0]
        own = call.args[bool(call.args) and ast.unparse(call.args[0]) == "self" :]
        plain = [a for a in own if not isinstance(a, ast.Starred)]
        passed |= {k.arg for k in call.keywords if k.arg}
        taken = list(inspect.signature(base).parameters.values())
        passed |= {p.name for p in taken[: len(plain)]}
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        found += [p for p in taken if p.kind not in variable and p.name not in passed]
        passed |= {p.name for p in taken}
    return [p for p in found if p.default is p.empty]
