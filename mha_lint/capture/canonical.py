"""Bring the arguments of an operation into one order, and choose a target that takes them so.

Whoever reads a recording then sees ``softmax`` as ``(x,), {"dim": d}`` and ``matmul`` as ``(a, b)``
whether it was a method, a function, an operator or an aten overload. What no entry covers is kept
as it was called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from mha_lint.capture.forms import FORMS, RENAMED, REVERSED, Form
from mha_lint.capture.sdpa import safe_softmax
from mha_lint.capture.stand_ins import (
    KeywordDropout,
    grouped_matmul,
    index,
    view_as,
    view_as_complex,
)

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""``(target, args, kwargs)``."""
Special = Callable[[tuple[Any, ...], dict[str, Any]], Call | None]


def canonical_call(
    name: str,
    raw: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    swapped: bool,
) -> Call:
    """Return the canonical call of the operation `name`, called as `function` named `raw`."""
    if swapped and name in REVERSED and len(args) == 2:
        return REVERSED[name], (args[1], args[0]), {}
    if function is torch.Tensor.where and len(args) == 3:
        return torch.where, (args[1], args[0], args[2]), {}
    special = _SPECIAL.get(raw)
    if special is not None:
        changed = special(args, dict(kwargs))
        if changed is not None:
            return changed
    form = FORMS.get(name)
    bound = _bind(form, args, kwargs) if form is not None and _fits(raw, args, kwargs) else None
    if bound is None or form is None:
        return function, args, dict(kwargs)
    return form.target, *bound


def in_place_arguments(
    name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an in-place method with those moved to their place that have one."""
    form = FORMS.get(name)
    bound = _bind(form, args, kwargs) if form is not None and not form.spread else None
    return bound if bound is not None else (args, dict(kwargs))


def _fits(raw: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether the tabled form is the overload that was called."""
    if raw == "view":  # view(dtype) reinterprets memory
        return not any(isinstance(a, torch.dtype) for a in (*args, *kwargs.values()))
    return raw not in ("native_layer_norm", "native_dropout")  # these return tuples


def _bind(
    form: Form, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    order = form.order
    if form.spread:
        if len(args) < form.positional and not (args and len(kwargs) == 1):
            return None
        head, tail = args[: form.positional - 1], args[form.positional - 1 :]
        if len(tail) == 1 and isinstance(tail[0], (tuple, list)):
            args = (*head, tuple(tail[0]))
        elif tail:
            args = (*head, tuple(tail))
    if len(args) > len(order):
        return None
    given = dict(zip(order, args, strict=False))
    for key, value in kwargs.items():
        renamed = key if key in order else RENAMED.get(key, key)
        if renamed not in order or renamed in given:
            return None
        given[renamed] = value
    first: list[Any] = []
    for place, key in enumerate(order[: form.positional]):
        if key not in given:
            if any(later in given for later in order[place:]):
                return None
            break
        first.append(given.pop(key))
    if form.spread and len(first) == form.positional and isinstance(first[-1], list):
        first[-1] = tuple(first[-1])
    if "dtype" in given and given["dtype"] is None:
        del given["dtype"]
    return tuple(first), given


def _plain_softmax(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    return (torch.softmax, args[:1], {"dim": args[1]}) if len(args) == 3 and not kwargs else None


def _plain_log_softmax(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    return (
        (torch.log_softmax, args[:1], {"dim": args[1]}) if len(args) == 3 and not kwargs else None
    )


def _safe(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    return (safe_softmax, args[:1], {"dim": args[1]}) if len(args) == 2 and not kwargs else None


def _zeros(function: Callable[..., Any]) -> Special:
    """Replay uninitialised memory as zeros, so that replays agree with each other."""

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        kept = {k: v for k, v in kwargs.items() if k not in ("memory_format", "pin_memory")}
        return function, args, kept

    return call


def _t(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    flat = len(args[0].meta.get("shape", ())) < 2
    return (torch.t, args, kwargs) if flat else (torch.transpose, (args[0], 0, 1), {})


def _index(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    """Turn ``aten.index(x, [None, i])`` into ``x[:, i]``."""
    if len(args) != 2 or not isinstance(args[1], (list, tuple)):
        return None
    return index, (args[0], tuple(slice(None) if i is None else i for i in args[1])), {}


def _einsum(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    if not args:
        return None
    if isinstance(args[0], str):
        operands = args[1] if len(args) == 2 and isinstance(args[1], (list, tuple)) else args[1:]
        return torch.einsum, (args[0], *operands), {}
    return torch.einsum, (sublist_equation(args), *args[0 : len(args) // 2 * 2 : 2]), {}


def sublist_equation(args: tuple[Any, ...]) -> str:
    """Turn the subscripts of ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` into "ab,bc->ac"."""
    lists = [args[i] for i in range(1, len(args) // 2 * 2, 2)]
    text = ",".join(_letters(s) for s in lists)
    return text + "->" + _letters(args[-1]) if len(args) % 2 else text


def _letters(subscripts: Any) -> str:
    return "".join(
        "..." if s is Ellipsis else chr(ord("A") + s) if s < 26 else chr(ord("a") + s - 26)
        for s in subscripts
    )


def _reshape_alias(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    return torch.reshape, args[:2], {}


def _grouped_mm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    return grouped_matmul, args, kwargs


def _other_dropout(function: Callable[..., Any]) -> Callable[..., Call | None]:
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        given = dict(zip(("p", "training"), args[1:], strict=False))
        given.update({RENAMED.get(k, k): v for k, v in kwargs.items()})
        return KeywordDropout(function), args[:1], given

    return call


def _contiguous_complex(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    return view_as_complex, args, kwargs


_SPECIAL: dict[str, Special] = {
    "_softmax": _plain_softmax,
    "_log_softmax": _plain_log_softmax,
    "_safe_softmax": _safe,
    "t": _t,
    "einsum": _einsum,
    "empty": _zeros(torch.zeros),
    "empty_like": _zeros(torch.zeros_like),
    "new_empty": _zeros(torch.Tensor.new_zeros),
    "index": _index,
    "_reshape_alias": _reshape_alias,
    "_grouped_mm": _grouped_mm,
    "grouped_mm": _grouped_mm,
    "view_as_complex": _contiguous_complex,
    "view_as": lambda args, kwargs: (view_as, args, kwargs),
    "feature_dropout": _other_dropout(torch.feature_dropout),
    "alpha_dropout": _other_dropout(torch.alpha_dropout),
    "feature_alpha_dropout": _other_dropout(torch.feature_alpha_dropout),
}
