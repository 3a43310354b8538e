"""See where attention may be computed: products of two activations, softmaxes, fused attention."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from mha_lint.targets.live.watch_state import ThreadState

NOTHING, CONTRACTION, SOFTMAX, PRODUCT, FUSED, IDLE = range(6)

_NAMES = {
    **dict.fromkeys(
        ("matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "inner", "tensordot"), CONTRACTION
    ),
    **dict.fromkeys(("baddbmm", "addmm", "addbmm", "einsum"), CONTRACTION),
    **dict.fromkeys(("softmax", "_softmax", "_safe_softmax", "gumbel_softmax"), SOFTMAX),
    **dict.fromkeys(("mul", "__mul__", "__rmul__", "multiply"), PRODUCT),
    **dict.fromkeys(
        ("scaled_dot_product_attention", "multi_head_attention_forward", "flex_attention"), FUSED
    ),
    **dict.fromkeys(("_native_multi_head_attention", "_transformer_encoder_layer_fwd"), FUSED),
    **dict.fromkeys(("__get__", "__set__", "size", "dim", "is_floating_point", "numel"), IDLE),
    **dict.fromkeys(("item", "backward", "_foreach_add_", "_foreach_lerp_", "_foreach_mul_"), IDLE),
}


class Spots:
    """How many spots of each kind."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        """Start with none."""
        self.seen = [0] * 5

    def enough(self) -> bool:
        """Return whether this may be attention: a softmax may be missing, or no product is made."""
        _, contractions, softmaxes, products, fused = self.seen
        return fused > 0 or contractions > 1 or (softmaxes > 0 and contractions + products > 0)

    def join(self, other: Spots) -> None:
        """Add those of `other`."""
        for kind, count in enumerate(other.seen):
            self.seen[kind] += count

    def without(self, other: Spots) -> None:
        """Take those of `other` away."""
        for kind, count in enumerate(other.seen):
            self.seen[kind] = max(0, self.seen[kind] - count)


class SpotMode(TorchFunctionMode):
    """Runs each torch function as it is, and tells one thread's state of the spots."""

    def __init__(self, state: ThreadState) -> None:
        """Serve one thread."""
        super().__init__()
        self._state = state
        self._kinds: dict[Any, int] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func`."""
        state = self._state
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = _NAMES.get(getattr(func, "__name__", ""), NOTHING)
        if kind != IDLE and not state.busy:
            if state.record is None and state.frames is not None:
                state.frames.enter(sys._getframe(1))
            if kind:
                with torch._C.DisableTorchFunction():  # the program's own modes see none of ours
                    found = spotted(kind, args, kwargs)
                if found:
                    state.spot(kind)
        return func(*args, **kwargs) if kwargs else func(*args)


def spotted(kind: int, args: Any, kwargs: dict[str, Any] | None) -> bool:
    """Return whether a call of this kind combines activations, not weights with an activation."""
    if kind in (FUSED, SOFTMAX):
        return True
    values = (*args, *kwargs.values()) if kwargs else args
    operands = [x for x in values if isinstance(x, torch.Tensor)]
    if not operands:  # einsum takes a list, too
        operands = [x for v in values if type(v) in (list, tuple) for x in v if _is_tensor(x)]
    operands = operands[-2:]  # the first of three is what is added
    if len(operands) < 2 or any(_is_weight(x) for x in operands):
        return False
    a, b = operands
    if kind == PRODUCT:
        return a.dim() > 2 and b.dim() > 2 and a.shape != b.shape
    return a.dim() > 1 and b.dim() > 1 and (a.dim() == b.dim() or min(a.dim(), b.dim()) > 2)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_weight(x: torch.Tensor) -> bool:
    """Return whether `x` is learned: a parameter or a view of one, or a leaf with a gradient."""
    if isinstance(x, torch.nn.Parameter):
        return True
    base = x._base
    if base is not None and isinstance(base, torch.nn.Parameter):
        return True
    return x.requires_grad and (x.is_leaf or (base is not None and base.is_leaf))
