"""Keep a call as it was before it was made, and copy its module once it is known to matter."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from mha_lint.targets.tensors import tensors_in

CLONED = 1 << 24
"""Tensors of more bytes than this are not copied before the call, only looked at again after it."""
SHARED = 1 << 28
"""Modules with parameters of more bytes than this share them with their copy."""
MOST_PARTS = 2000
"""Objects of more parts than this are no caches of a call: they are not copied."""
_CONTAINERS = (dict, list, set)
_HOOKS = tuple(
    name
    for name in vars(nn.Module())
    if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))
)
_PLAIN = frozenset(vars(nn.Module())) - {"_buffers"}
"""Attributes that every module has: they are no state of a call."""


def size_of(x: torch.Tensor) -> int:
    """Return the bytes of `x`; none for what has no values yet."""
    return 0 if is_lazy(x) else x.numel() * x.element_size()


def has_values(x: torch.Tensor) -> bool:
    """Return whether `x` holds numbers that can be copied: it is not fake, and not inside vmap."""
    if x.is_meta or type(x).__name__ == "FakeTensor":
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(x)


def _weight(value: Any, left: int) -> int:
    """Return what is left of `left` when each part of `value` takes one."""
    left -= 1
    if left <= 0 or value is None or isinstance(value, torch.Tensor | str | int | float | type):
        return left
    parts: Any = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | set):
        parts = value
    elif isinstance(value, nn.Module) or callable(value):
        return left
    elif hasattr(value, "__dict__"):
        parts = vars(value).values()
    for part in parts:
        left = _weight(part, left)
        if left <= 0:
            break
    return left


class Clones:
    """Copies of tensors, one for each: shared ones stay shared."""

    def __init__(self) -> None:
        """Start with none."""
        self.memo: dict[int, Any] = {}
        self.alive: list[Any] = []
        self.large: list[tuple[torch.Tensor, int]] = []
        self.valid = True

    def of(self, value: Any) -> Any:
        """Return a copy of `value`: tensors cut off from their graph, containers, small objects."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if value is None or isinstance(value, nn.Module | type | bool | int | float | str):
            return value
        if type(value) in (list, tuple, set):
            return type(value)([self.of(item) for item in value])
        if type(value) is dict:
            return {key: self.of(item) for key, item in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.of(item) for item in value))
        if not hasattr(value, "__dict__") or callable(value) or _weight(value, MOST_PARTS) <= 0:
            return value
        for x in tensors_in(value):
            self.tensor(x)
        try:
            return copy.deepcopy(value, self.memo)
        except Exception:  # whatever user classes raise: then the call gets the object itself
            return value

    def tensor(self, x: torch.Tensor) -> torch.Tensor:
        """Return the copy of `x`, or `x` itself where that is large and will be looked at again."""
        made: torch.Tensor | None = self.memo.get(id(x))
        if made is None:
            self.alive.append(x)
            if not has_values(x):
                self.valid = False
                made = x
            elif size_of(x) > CLONED or isinstance(x, nn.Parameter):
                self.large.append((x, x._version if not x.is_inference() else 0))
                made = x.detach()
            else:
                made = x.detach().clone()
            self.memo[id(x)] = made
        return made

    def intact(self) -> bool:
        """Return whether all copies hold what was there before the call."""
        return self.valid and all(x.is_inference() or x._version == v for x, v in self.large)


def lively(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """Return the arguments with random numbers for an input that is the same everywhere.

    Zeros and ones to try a model out tell nothing: no position differs from another. The input is
    the first tensor of numbers; what has the same shape goes with it. Third: whether this was done.
    """
    tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
    first = next((x for x in tensors if x.is_floating_point()), None)
    if first is None or first.dim() < 3 or first.numel() < 2 or not _is_constant(first):
        return args, kwargs, False
    generator = torch.Generator().manual_seed(0)
    made: dict[int, torch.Tensor] = {}
    for x in tensors:
        if x.shape == first.shape and x.is_floating_point() and _is_constant(x):
            noise = torch.randn(x.shape, generator=generator)
            made.setdefault(id(x), noise.to(x.device, x.dtype))
    return (
        tuple(made.get(id(v), v) for v in args),
        {name: made.get(id(v), v) for name, v in kwargs.items()},
        True,
    )


def _is_constant(x: torch.Tensor) -> bool:
    return bool((x == x.flatten()[0]).all())


@dataclass(slots=True)
class KeptCall:
    """Arguments of a call, and the attributes of its module, as they were before it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    clones: Clones
    autocast: tuple[tuple[str, torch.dtype], ...]
    defaults: tuple[torch.dtype, torch.device]
    attributes: list[tuple[nn.Module, dict[str, Any], dict[str, Any]]] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        """Return whether the arguments are still to be had as they were."""
        return self.clones.intact()


def keep(module: nn.Module | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KeptCall:
    """Keep ``module(*args, **kwargs)`` as it stands now."""
    clones = Clones()
    made_args = tuple(clones.of(a) for a in args)
    made_kwargs = {name: clones.of(a) for name, a in kwargs.items()}
    defaults = (torch.get_default_dtype(), torch.get_default_device())
    kept = KeptCall(made_args, made_kwargs, clones, _autocast(module), defaults)
    if module is not None and not any(is_lazy(p) for p in module.parameters()):
        held = Clones()
        for part in module.modules():
            own = {n: v for n, v in vars(part).items() if n not in _PLAIN}
            state = {n: _state(v, held) for n, v in own.items() if not isinstance(v, nn.Module)}
            state["_buffers"] = {n: _state(b, held) for n, b in part._buffers.items()}
            kept.attributes.append((part, own, state))
    return kept


def _state(value: Any, held: Clones) -> Any:
    """Return what `value` is now, though it may be changed in place."""
    if isinstance(value, torch.Tensor):
        return held.tensor(value) if has_values(value) else value
    return copy.copy(value) if type(value) in _CONTAINERS else value


def _autocast(module: nn.Module | None) -> tuple[tuple[str, torch.dtype], ...]:
    kinds = {"cpu", "cuda"}
    if module is not None:
        kinds |= {p.device.type for p in module.parameters()} - {"meta"}
    return tuple(
        (kind, torch.get_autocast_dtype(kind))
        for kind in sorted(kinds)
        if torch.is_autocast_enabled(kind)
    )


def copy_of(module: nn.Module, kept: KeptCall) -> nn.Module:
    """Return a copy of `module` with its attributes and buffers as they were before the call."""
    memo = _memo(module)
    try:
        made: nn.Module = copy.deepcopy(module, memo)
    except Exception:  # whatever user classes raise
        memo = _memo(module)
        made = _by_hand(module, memo)
    for part, own, state in kept.attributes:
        twin = memo.get(id(part))
        if isinstance(twin, nn.Module) and twin is not part:
            _put_back(part, twin, own, state, memo)
    return made


def _memo(module: nn.Module) -> dict[int, Any]:
    """Return the copies that are made in another way than `copy.deepcopy` would."""
    memo: dict[int, Any] = {}
    if sum(size_of(p) for p in module.parameters()) > SHARED:
        memo |= {id(p): p for p in module.parameters()}
    for part in module.modules():
        for name in _HOOKS:  # a method's own object may be all of the program
            memo |= {id(hook): hook for hook in vars(part).get(name, {}).values()}
        for held in (*part._parameters.values(), *part._buffers.values(), *vars(part).values()):
            for x in tensors_in(held, 2):
                if not is_lazy(x) and x.requires_grad and not x.is_leaf:
                    memo[id(x)] = x.detach().clone()
    return memo


def _by_hand(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Return a copy of a module some attribute of which cannot be copied: that one is shared."""
    parts = list(module.modules())
    for part in parts:
        memo[id(part)] = part.__class__.__new__(part.__class__)
    for part in parts:
        twin = memo[id(part)]
        for name, value in vars(part).items():
            try:
                twin.__dict__[name] = copy.deepcopy(value, memo)
            except Exception:  # a lock, a file, a generator
                twin.__dict__[name] = value
    made: nn.Module = memo[id(module)]
    return made


def _put_back(
    part: nn.Module,
    twin: nn.Module,
    own: dict[str, Any],
    state: dict[str, Any],
    memo: dict[int, Any],
) -> None:
    now = vars(part)
    for name in [n for n in vars(twin) if n not in own and n not in _PLAIN and n != "_buffers"]:
        del twin.__dict__[name]
    for name, before in own.items():
        if name not in state:
            continue
        changed = now.get(name) is not before or type(before) in _CONTAINERS
        if changed or isinstance(before, torch.Tensor):
            twin.__dict__[name] = _copied(state[name], memo)
    for name, buffer in state["_buffers"].items():
        twin._buffers[name] = _copied(buffer, memo)


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, torch.Tensor):  # a clone made before the call, or one that is too large
        return value.detach() if value.requires_grad and not value.is_leaf else value
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # as above
        return value
