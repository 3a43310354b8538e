"""The two recording modes: torch functions as the user called them, or aten operations below them.

The first keeps the user's own operations (a softmax is a softmax), and records nearly everything.
Inside vmap, TorchScript and the like it sees nothing or fails; there the second takes over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C._functorch import peek_interpreter_stack
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mha_lint.capture import flex, products, sdpa
from mha_lint.capture.calls import CONTAINERS, PLAIN_RESULTS, CallRecorder, kept
from mha_lint.capture.names import raw_name

_getframe = sys._getframe
_is_autocast = torch._C._is_any_autocast_enabled
_transforms = peek_interpreter_stack
_SDPA: Any = torch.nn.functional.scaled_dot_product_attention


class BelowFunctionsError(Exception):
    """Something runs that only shows in aten operations: gradients, function transforms."""


class FunctionMode(TorchFunctionMode):
    """Records each torch function, method and operator."""

    def __init__(self, calls: CallRecorder) -> None:
        """Hand what is called to `calls`."""
        super().__init__()
        self._calls = calls
        self._entries = calls.entries
        self._places = calls.builder.walker.places
        self._place = calls.builder.walker.place
        calls.mode = self

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func` and record it."""
        calls = self._calls
        entry = self._entries.get(func)
        if entry is None:
            entry = calls.entry(func)
        if entry.passed:
            return func(*args, **kwargs) if kwargs else func(*args)
        if _transforms() is not None or entry.below:
            raise BelowFunctionsError(raw_name(func))
        if (
            entry.plain
            and calls.lowering is None
            and not (kwargs and "out" in kwargs)
            and not _is_autocast()
        ):
            # The common case, spelled out here since each call costs.
            if kwargs:
                result = func(*args, **kwargs)
                kwargs = kept(kwargs)
            else:
                result = func(*args)
            if type(result) in PLAIN_RESULTS:
                return result
            frame = _getframe(1)
            place = self._places.get(frame)
            if place is None:
                place = self._place(frame)
            for value in args:
                if type(value) in CONTAINERS:
                    args = kept(args)
                    break
            calls.noted.append((entry, func, args, kwargs, result, place, frame.f_lasti, None))
            return result
        if entry.unfolded and calls.lowering is None:
            if func is _SDPA:
                return self._attention(args, kwargs or {}, sys._getframe(1))
            if func is torch.einsum and products.is_chain(args):
                func(*args, **(kwargs or {}))  # a wrong call must fail as the real one does
                return self._lowered(products.lowered, "einsum", args, kwargs or {})
            if raw_name(func) == "flex_attention":
                return self._lowered(flex.lowered, "flex_attention", args, kwargs or {})
        return calls.run(func, args, kwargs or {}, sys._getframe(1))

    def _attention(self, args: Any, kwargs: dict[str, Any], frame: Any) -> Any:
        """Run attention as it is, and let its parts be recorded later, unless it draws numbers."""
        result = _SDPA(*args, **kwargs)
        if kwargs.get("dropout_p") or (len(args) > 4 and args[4]):
            return self._lowered(sdpa.lowered, _SDPA.__name__, args, kwargs)
        self._calls.note_lowered(_SDPA, sdpa.lowered, args, kwargs, result, frame)
        return result

    def _lowered(
        self, plain: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Run what is one call as the plain operations that it stands for."""
        self._calls.lowering = name
        try:
            with self:
                return plain(*args, **kwargs)
        finally:
            self._calls.lowering = None


class AtenMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it so
    """Records each aten operation."""

    def __init__(self, calls: CallRecorder) -> None:
        """Hand what is dispatched to `calls`."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it so
        self._calls = calls

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func` and record it."""
        return self._calls.run(func, args, kwargs or {}, sys._getframe(1))


@contextmanager
def aten_operations(calls: CallRecorder) -> Iterator[None]:
    """Record aten operations only, for a while, in place of torch functions."""
    flash, efficient = torch._C._get_flash_sdp_enabled(), torch._C._get_mem_efficient_sdp_enabled()
    torch._C._set_sdp_use_flash(False)  # fused attention would hide scores and weights
    torch._C._set_sdp_use_mem_efficient(False)
    try:
        with torch._C.DisableTorchFunction(), AtenMode(calls):
            yield
    finally:
        torch._C._set_sdp_use_flash(flash)
        torch._C._set_sdp_use_mem_efficient(efficient)
