"""The precision and device that a recording is replayed in, in place of the recorded ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mha_lint.capture.names import raw_name

_FLOATS = frozenset(
    (
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
    )
)
_COMPLEX_OF = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}
_COMPLEX = frozenset(_COMPLEX_OF.values())
_CASTS = frozenset(("float", "half", "bfloat16", "double"))
_TYPE_NAMES = ("FloatTensor", "HalfTensor", "BFloat16Tensor", "DoubleTensor")

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Precision:
    """``dtype`` None keeps the recorded types."""

    dtype: torch.dtype | None
    device: torch.device

    def type_of(self, dtype: torch.dtype) -> torch.dtype:
        """Return what stands for the recorded `dtype`."""
        if self.dtype is None:
            return dtype
        if dtype in _FLOATS:
            return self.dtype
        return _COMPLEX_OF.get(self.dtype, dtype) if dtype in _COMPLEX else dtype

    def tensor(self, x: torch.Tensor) -> torch.Tensor:
        """Return a given value (an input, a parameter, a substitute) as the replay needs it."""
        plain = x.detach()
        if type(plain) is not torch.Tensor:
            plain = plain.as_subclass(torch.Tensor)
        return plain.to(device=self.device, dtype=self.type_of(plain.dtype))

    def result(self, value: Any) -> Any:
        """Return a computed value: what ignored the default dtype is cast after all."""
        if self.dtype is None or not isinstance(value, torch.Tensor) or value.dtype is self.dtype:
            return value
        wanted = self.type_of(value.dtype)
        return value if wanted is value.dtype else value.to(wanted)

    def call(self, node: fx.Node) -> Call:
        """Return the call of `node` with types, casts and devices rewritten."""
        target: Any = node.target
        args = tuple(self._argument(a) for a in node.args)
        kwargs = {k: self._argument(v) for k, v in node.kwargs.items()}
        if "device" in kwargs:
            kwargs["device"] = self.device
        if node.meta["op"] == "to":
            raw = raw_name(target)
            if self.dtype is not None and (raw in _CASTS or (raw == "type" and _is_float(args))):
                return torch.Tensor.to, (args[0], self.dtype), {}
            if raw in ("cuda", "cpu"):
                return torch.Tensor.to, (args[0], self.device), {}
            args = tuple(self.device if _is_device(a) else a for a in args)
        if self.dtype is None and "autocast" in node.meta:
            target = _under_autocast(target, self.device.type, node.meta["autocast"])
        return target, args, kwargs

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return self.type_of(value)
        if isinstance(value, torch.device):
            return self.device
        if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
            items = [self._argument(v) for v in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, dict):
            return {k: self._argument(v) for k, v in value.items()}
        return value


def _is_float(args: tuple[Any, ...]) -> bool:
    """Tell whether ``x.type(...)`` was asked for a floating type by its old name."""
    return len(args) == 2 and str(args[1]).rstrip("'>").endswith(_TYPE_NAMES)


def _is_device(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("cpu", "cuda"))


def _under_autocast(
    target: Callable[..., Any], device: str, dtype: torch.dtype
) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, dtype=dtype):
            return target(*args, **kwargs)

    return run
