"""What is known of each torch function before it is called."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import HigherOrderOperator

from mha_lint.capture.names import canonical_name, raw_name

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
_UNFOLDED = frozenset((torch.nn.functional.scaled_dot_product_attention, torch.einsum))
_ESCAPES = frozenset(("numpy", "__array__", "tolist", "item", "__float__", "__int__", "__index__"))
_METADATA = frozenset(
    ("transpose_", "t_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "as_strided_",
     "resize_", "resize_as_", "set_", "detach_")
)  # fmt: skip
_STATISTICS = frozenset(("batch_norm", "instance_norm", "native_batch_norm"))
UNINITIALISED = frozenset(("empty", "empty_like", "new_empty"))
_SOFTMAXES = frozenset(("softmax", "log_softmax"))


@dataclass(slots=True)
class Entry:
    """One torch function."""

    op: str
    raw: str
    swapped: bool
    changes: str
    """"" (nothing), "first" (argument), "any" (tensor), "schema", "metadata", "data"
    or "statistics" (the running mean and variance of a norm)."""
    written: tuple[int | str, ...]
    """Places and names of the arguments that the schema of an aten overload marks as written."""
    getter: bool
    escape: bool
    """Whether the data of a tensor leaves for Python."""
    passed: bool
    """Whether it only asks for a property."""
    below: bool
    """Whether it only shows in aten operations."""
    unfolded: bool
    """Whether one call may have to be recorded as several."""
    softmax: bool
    aside: bool
    """Whether the result needs care at once: an idle dropout, memory that was never set."""
    trusted: bool = False
    """Whether it is one of torch's own, and was seen to change nothing."""
    plain: bool = False
    """Whether a call needs no care but to be noted."""

    def trust(self) -> None:
        """Note that a call has changed nothing."""
        self.trusted = True
        special = self.escape or self.passed or self.below or self.unfolded or self.aside
        self.plain = not (special or self.changes or self.softmax)


def entry_of(func: Any, learned: Set[Any]) -> Entry:
    """Return what is known of `func`; `learned` are functions found to change their arguments."""
    op, swapped, in_place = canonical_name(func)
    raw = raw_name(func)
    written = _written(func)
    changes = ""
    if isinstance(func, torch._ops.OpOverload) and raw not in _STATISTICS:
        changes = "schema" if written else ""
    elif raw == "__set__":
        changes = "data" if getattr(func.__self__, "__name__", "") == "data" else ""
    elif raw in _METADATA:
        changes = "metadata"
    elif raw in _STATISTICS:
        changes = "statistics"
    elif func in learned:
        changes = "any"
    elif in_place:
        changes = "first"
    return Entry(
        op=op,
        raw=raw,
        swapped=swapped,
        changes=changes,
        written=written,
        getter=getattr(func, "__name__", "") == "__get__",
        escape=raw in _ESCAPES,
        passed=func in _PASSED,
        below=func in _DIFFERENTIATION,
        unfolded=func in _UNFOLDED or isinstance(func, HigherOrderOperator),
        softmax=op in _SOFTMAXES,
        aside=op == "dropout" or op in UNINITIALISED,
    )


def _written(func: Any) -> tuple[int | str, ...]:
    """Return the places and names of the arguments that an aten overload says it writes."""
    if not isinstance(func, torch._ops.OpOverload):
        return ()
    found: list[int | str] = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += [place, argument.name]
    return tuple(found)
