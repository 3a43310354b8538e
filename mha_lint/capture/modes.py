"""The two recording modes: torch functions as the user called them, or aten operations below them.

The first keeps the user's own operations (a softmax is a softmax), and records nearly everything.
Inside vmap, TorchScript and the like it sees nothing or fails; there the second takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C._functorch import peek_interpreter_stack
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from mha_lint.capture import flex, products, sdpa
from mha_lint.capture.calls import CallRecorder
from mha_lint.capture.names import raw_name

_T = torch.Tensor
_PASSED: frozenset[Any] = frozenset(
    getattr(_T, name).__get__
    for name in ("shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "layout", "grad",
                 "grad_fn", "is_leaf", "names", "is_sparse", "is_quantized", "is_nested", "is_meta",
                 "itemsize", "nbytes", "is_cpu", "is_mps", "_version", "output_nr")
    if hasattr(getattr(_T, name, None), "__get__")
) | frozenset(
    getattr(_T, name)
    for name in ("size", "dim", "numel", "nelement", "stride", "storage_offset", "is_contiguous",
                 "is_floating_point", "is_complex", "element_size", "__len__", "data_ptr",
                 "ndimension", "get_device", "is_signed", "untyped_storage", "__repr__",
                 "__format__", "__hash__", "requires_grad_", "retain_grad", "register_hook",
                 "is_shared", "is_inference")
)  # fmt: skip
"""Calls that ask for a property of a tensor, and change none."""
_DIFFERENTIATION = frozenset((torch.autograd.grad, torch.autograd.backward, _T.backward))
_SDPA: Any = torch.nn.functional.scaled_dot_product_attention


class BelowFunctionsError(Exception):
    """Something runs that only shows in aten operations: gradients, function transforms."""


class FunctionMode(TorchFunctionMode):
    """Records each torch function, method and operator."""

    def __init__(self, calls: CallRecorder) -> None:
        """Hand what is called to `calls`."""
        super().__init__()
        self._calls = calls

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func` and record it."""
        if func in _PASSED:
            return func(*args, **(kwargs or {}))
        if self._calls.builder.lowering is None:
            if func is _SDPA:
                func(*args, **(kwargs or {}))  # a wrong call must fail as the real function does
                return self._lowered(sdpa.lowered, _SDPA.__name__, args, kwargs)
            if func is torch.einsum and products.is_chain(args):
                func(*args, **(kwargs or {}))
                return self._lowered(products.lowered, "einsum", args, kwargs)
            if isinstance(func, HigherOrderOperator) and raw_name(func) == "flex_attention":
                return self._lowered(flex.lowered, "flex_attention", args, kwargs)
        if func in _DIFFERENTIATION or peek_interpreter_stack() is not None:
            raise BelowFunctionsError(raw_name(func))
        return self._calls.run(func, args, kwargs or {})

    def _lowered(
        self, plain: Callable[..., Any], name: str, args: Any, kwargs: dict[str, Any] | None
    ) -> Any:
        """Run what is one call as the plain operations that it stands for."""
        self._calls.builder.lowering = name
        try:
            with self:
                return plain(*args, **(kwargs or {}))
        finally:
            self._calls.builder.lowering = None


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
        return self._calls.run(func, args, kwargs or {})


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
