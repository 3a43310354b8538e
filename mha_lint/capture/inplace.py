"""Functional stand-ins for operations that change their arguments.

`Changed` runs such an operation on copies and returns what the copies became, so a graph of them
has no hidden effects: dead code may go, and a backward walk meets masks and scales set in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Path = tuple[int | str, ...]
"""Where an argument stands: ``(0,)``, ``("out",)``, ``(0, 2)``."""


class Changed:
    """`function` with the arguments at `paths` copied first.

    Returns the changed copy; with several paths, or with `with_result`, the tuple of the function's
    own result (None unless `with_result`) and each changed copy.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        paths: Sequence[Path],
        *,
        name: str,
        with_result: bool = False,
    ) -> None:
        """Wrap `function`; `name` is the operation's canonical name."""
        self.function = function
        self.paths = tuple(paths)
        self.with_result = with_result
        self.__name__ = self.__qualname__ = f"{name}_changed"
        self.__module__ = __name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on copies."""
        positional, named, copies = list(args), dict(kwargs), []
        for path in self.paths:
            copy = _copy(_get(positional, named, path))
            copies.append(copy)
            _set(positional, named, path, copy)
        result = self.function(*positional, **named)
        if len(copies) == 1 and not self.with_result:
            return copies[0]
        return (result if self.with_result else None, *copies)


def _copy(x: torch.Tensor) -> torch.Tensor:
    """Return a copy laid out as `x`: dropout behind it draws its numbers in the order of memory."""
    return x.clone()


def _get(args: Sequence[Any], kwargs: dict[str, Any], path: Path) -> Any:
    value: Any = kwargs[path[0]] if isinstance(path[0], str) else args[path[0]]
    for step in path[1:]:
        value = value[step]
    return value


def _set(args: list[Any], kwargs: dict[str, Any], path: Path, value: Any) -> None:
    if len(path) == 1:
        if isinstance(path[0], str):
            kwargs[path[0]] = value
        else:
            args[path[0]] = value
        return
    head = path[:-1]
    holder = list(_get(args, kwargs, head))
    holder[int(path[-1])] = value
    _set(args, kwargs, head, holder)
