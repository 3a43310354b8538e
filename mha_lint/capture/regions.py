"""Make visible, while recording, what a torch function mode alone does not see.

vmap and TorchScript switch to aten operations for their duration; scripted functions that keep
their Python original run that; ``torch.from_numpy`` reports what it makes; a softmax without a dim
is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch._functorch.apis as vmap_apis
import torch.nn.functional as F

from mha_lint.capture.calls import CallRecorder
from mha_lint.capture.modes import aten_operations
from mha_lint.capture.state import replaced


@contextmanager
def visible(calls: CallRecorder) -> Iterator[None]:
    """Patch torch so that `calls` hears of everything; undone at the end."""
    builder = calls.builder
    pick_dim: Callable[..., int] = getattr(F, "_get_softmax_dim")  # noqa: B009 - not in the stubs
    convert = torch.from_numpy
    run_vmap: Any = getattr(vmap_apis, "vmap_impl")  # noqa: B009 - not in the stubs

    def noted_dim(*args: Any, **kwargs: Any) -> int:
        calls.implicit_dim = True
        return pick_dim(*args, **kwargs)

    def noted_array(array: Any) -> torch.Tensor:
        x = convert(array)
        if not builder.escaped:  # it cannot depend on data that never left torch
            builder.known.add(x, "constant", "torch.from_numpy")
        return x

    def mapped(*args: Any, **kwargs: Any) -> Any:
        with aten_operations(calls):
            return run_vmap(*args, **kwargs)

    with ExitStack() as stack:
        for owner, name, value in (
            (F, "_get_softmax_dim", noted_dim),
            (torch, "from_numpy", noted_array),
            (vmap_apis, "vmap_impl", mapped),
            (torch, "compile", _uncompiled),
            (torch._C.ScriptFunction, "__call__", _scripted(torch._C.ScriptFunction, calls)),
            (torch._C.ScriptMethod, "__call__", _scripted(torch._C.ScriptMethod, calls)),
        ):
            stack.enter_context(replaced(owner, name, value))
        yield


def _uncompiled(model: Any = None, **_: Any) -> Any:
    """Stand in for ``torch.compile``, also as a decorator with options."""
    return model if model is not None else lambda function: function


def _scripted(kind: Any, calls: CallRecorder) -> Callable[..., Any]:
    compiled = kind.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        original = getattr(self, "_torchdynamo_inline", None)
        if original is not None:
            return original(*args, **kwargs)
        with aten_operations(calls):
            return compiled(self, *args, **kwargs)

    return call
