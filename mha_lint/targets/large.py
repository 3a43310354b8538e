"""Large tensors without memory: shapes and types of what would not fit, values of all that does.

Weights of a large model are fake tensors, and so is what is computed from them. Small tensors are
real, so that masks, positions and tables of angles have their values, and code that looks at them
runs as it would.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

LARGE = 1 << 18
"""Elements from which on a new tensor has no memory: 1 MB in float32."""


class WithoutLarge(FakeTensorMode):  # type: ignore[no-untyped-call]
    """A mode in which new tensors of `LARGE` elements or more are fake, and all that they reach."""

    def __init__(self) -> None:
        """Begin with no fake tensor."""
        super().__init__(allow_non_fake_inputs=True)
        # An operation that fails is told by its error; the library would print a page besides.
        logging.getLogger(FakeTensorMode.__module__).setLevel(logging.CRITICAL)
        self._held: dict[int, tuple[torch.Tensor, FakeTensor]] = {}
        """Real tensors that met fake ones, with their fakes: making one takes long."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run `func` for real where all its tensors are, else on shapes alone."""
        kwargs = kwargs or {}
        if FakeTensor in types or _holds_fake(args) or (kwargs and _holds_fake(kwargs.values())):
            return super().__torch_dispatch__(func, types, self._faked(args), kwargs)
        if args and type(args[0]) in (list, tuple, torch.Size) and _elements(args[0]) >= LARGE:
            return super().__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **kwargs)

    def _faked(self, args: Any) -> Any:
        """Return `args` with real tensors as fakes; the same object where there is none."""
        changed: list[Any] | None = None
        for place, value in enumerate(args):
            new = value
            if isinstance(value, torch.Tensor):
                if not isinstance(value, FakeTensor):
                    new = self._fake(value)
            elif type(value) in (list, tuple):
                new = self._faked(value)
            if new is not value:
                changed = list(args) if changed is None else changed
                changed[place] = new
        return args if changed is None else type(args)(changed)

    def _fake(self, x: torch.Tensor) -> FakeTensor:
        held = self._held.get(id(x))
        if held is None:
            held = self._held[id(x)] = (x, self.from_tensor(x))
        return held[1]


def _holds_fake(values: Iterable[Any]) -> bool:
    for value in values:
        if isinstance(value, FakeTensor):
            return True
        if type(value) in (list, tuple) and _holds_fake(value):
            return True
    return False


def _elements(sizes: Iterable[Any]) -> int:
    count = 1
    for size in sizes:
        if type(size) is not int:
            return 0
        count *= size
    return count


def is_large(module: nn.Module) -> bool:
    """Return whether `module` holds weights that have no values."""
    return any(has_no_values(p) for p in module.parameters())


def has_no_values(x: torch.Tensor) -> bool:
    """Return whether `x` is a shape without numbers: a meta tensor or a fake one."""
    return x.is_meta or isinstance(x, FakeTensor)


def mode_of(module: object) -> contextlib.AbstractContextManager[object]:
    """Return the mode that fake weights of `module` were made in; all others need none."""
    if isinstance(module, nn.Module):
        for parameter in module.parameters():
            if isinstance(parameter, FakeTensor):
                mode: contextlib.AbstractContextManager[object] = parameter.fake_mode
                return mode
    return contextlib.nullcontext()
