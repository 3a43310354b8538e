"""What else is arranged while a program is watched, so that it runs as it would without us."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.overrides

from mha_lint.targets.live.watch_spots import SpotMode


class Patches:
    """Functions of torch that are replaced while a program is watched."""

    def __init__(self, forked: Callable[[], None]) -> None:
        """`forked` is called in every child process that is forked."""
        self._places: list[tuple[Any, str, Any]] = []
        self.scripted: list[tuple[Any, Any]] = []
        """Functions that the program scripted: what it got, and the Python function behind it."""
        kept = weakref.WeakMethod(forked)  # os keeps what it is given for ever

        def in_child() -> None:
            call = kept()
            if call is not None:
                call()

        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=in_child)

    def install(self) -> None:
        """Replace them."""
        self._replace(torch.overrides, "has_torch_function", _has_torch_function)
        self._replace(torch, "compile", self._compile)
        self._replace(torch.jit, "script", self._script)

    def remove(self) -> None:
        """Put them back."""
        for place, name, before in reversed(self._places):
            setattr(place, name, before)
        self._places.clear()

    def _replace(self, place: Any, name: str, make: Callable[[Any], Any]) -> None:
        before = getattr(place, name)
        self._places.append((place, name, before))
        setattr(place, name, make(before))

    def _compile(self, original: Any) -> Any:
        def compile(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            # Compiled code has no modules and no calls to see: it is run as it was written.
            torch.compiler.set_stance("force_eager")
            return made

        return compile

    def _script(self, original: Any) -> Any:
        def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None) -> Any:
            made = original(obj, optimize, _frames_up + 1, _rcb)
            if isinstance(made, torch.jit.ScriptFunction) and not isinstance(obj, type):
                self.scripted.append((made, obj))
            return made

        return script


def _has_torch_function(original: Any) -> Any:
    def has_torch_function(tensors: Any) -> bool:
        """Return what torch would say without our mode: else its modules leave their fast paths."""
        height = torch._C._len_torch_function_stack()
        if height and isinstance(torch._C._get_function_stack_at(height - 1), SpotMode):
            mode = torch._C._pop_torch_function_stack()
            try:
                return bool(original(tensors))
            finally:
                torch._C._push_on_torch_function_stack(mode)
        return bool(original(tensors))

    return has_torch_function


@contextlib.contextmanager
def unscripted(scripted: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """Let the program's functions call the Python functions behind those that it scripted."""
    held = []
    for made, function in scripted:
        names = getattr(function, "__globals__", {})
        for name, value in list(names.items()):
            if value is made:
                held.append((names, name, made))
                names[name] = function
    try:
        yield
    finally:
        for names, name, made in held:
            names[name] = made
