"""What stands for classes and decorators of packages that are not installed."""

from __future__ import annotations

import ast
import functools
import inspect
from typing import Any

from torch import nn

from mha_lint.targets.infer.bodies import function_tree

_OF_PARTS = (
    nn.MultiheadAttention,
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    nn.RNNBase,
)
"""Layers of torch in whose layout and parts another package's of the same name may differ."""


class StandIn(nn.Module):
    """Stands for a base class of a package that is missing; what its constructor takes is unknown."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        """Take whatever the base would."""
        super().__init__()


def _torch_class(name: str) -> type[nn.Module] | None:
    """Return torch's layer of the same name as the dotted `name`, None without any."""
    made = getattr(nn, name.rpartition(".")[2], None)
    if not isinstance(made, type) or not issubclass(made, nn.Module) or made is nn.Module:
        return None
    return None if issubclass(made, _OF_PARTS) else made


@functools.lru_cache(maxsize=64)
def base_like(name: str) -> type[nn.Module]:
    """Return a class to inherit from in place of `name`: like torch's of that name, if there is one.

    Its constructor leaves out what torch's does not take.
    """
    like = _torch_class(name)
    if like is None:
        return StandIn
    known = inspect.signature(like).parameters

    class Base(StandIn, like):  # type: ignore[valid-type, misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            nn.Module.__init__(self)
            own = {k: v for k, v in kwargs.items() if k in known}
            super(StandIn, self).__init__(*args, **own)

    return Base


def layer_like(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> nn.Module | None:
    """Return torch's layer of the same name as `name`, None where it cannot be made like this."""
    like = _torch_class(name)
    try:
        return like(*args, **kwargs) if like is not None else None
    except (TypeError, ValueError):
        return None


def passes_on(function: Any) -> bool:
    """Tell whether `function` is handed a function and what to call it with.

    ``def timed(wrapped, instance, args, kwargs): ... wrapped(*args, **kwargs)``
    """
    tree = function_tree(function)
    if tree is None:
        return False
    names = {a.arg for a in (*tree.args.posonlyargs, *tree.args.args)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Name(id=called),
                args=[ast.Starred(value=ast.Name(id=given))],
                keywords=[ast.keyword(arg=None, value=ast.Name(id=named))],
            ) if {called, given, named} <= names:
                return True
    return False
