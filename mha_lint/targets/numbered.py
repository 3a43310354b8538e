"""A made-up mask that its code reckons with: it takes a number where it was given a truth value.

``mask.masked_fill(mask == 0, -1e9)`` and ``scores + mask`` are right for a mask of numbers. That the
mask is of truth values was a guess, and no fault of the code: another form is looked for first.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from mha_lint.targets.infer.input_names import MASK
from mha_lint.targets.make import fresh
from mha_lint.targets.subject import Subject
from mha_lint.targets.tensors import tensors_in

_ADDING = frozenset({"add", "add_", "__add__", "__radd__", "__iadd__", "sub", "__rsub__"})
_FILLING = frozenset({"masked_fill", "masked_fill_", "fill_", "__setitem__", "masked_fill__"})


def other_forms(subject: Subject) -> Iterator[str]:
    """Yield calls of `subject` in which a mask of truth values that is reckoned with is of numbers."""
    tree = ast.parse(f"f({subject.call})", mode="eval")
    assert isinstance(tree.body, ast.Call)
    values = [*tree.body.args, *(k.value for k in tree.body.keywords)]
    given = [*subject.args, *subject.kwargs.values()]
    for name, value, held in zip(subject.argument_names, values, given, strict=False):
        if not (MASK.search(name.lower()) and isinstance(value, ast.Call)):
            continue
        if not (isinstance(held, torch.Tensor) and held.dtype == torch.bool):
            continue
        how = _reckoning(subject, held)
        whole, made = list(value.keywords), value.func
        if not how or not isinstance(made, ast.Attribute) or made.attr not in ("ones", "zeros"):
            continue
        value.keywords = [k for k in whole if k.arg != "dtype"]
        before = made.attr
        for made.attr in ("zeros", "ones") if how == "added" else ("ones", "zeros"):
            yield ast.unparse(tree.body).removeprefix("f(").removesuffix(")")
        value.keywords, made.attr = whole, before


class _Reckons(TorchFunctionMode):
    """Notes how truth values that come from a mask are used as numbers: "added" or "filled"."""

    def __init__(self, mask: torch.Tensor) -> None:
        super().__init__()
        self.held: dict[int, torch.Tensor] = {id(mask): mask}
        self.how = ""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = list(tensors_in([args, kwargs or {}]))
        own = [t for t in given if id(t) in self.held]
        made = func(*args, **(kwargs or {}))
        if not own or self.how:
            return made
        name = getattr(func, "__name__", "")
        if name in _FILLING and args and id(args[0]) in self.held and _is_number(args[-1]):
            self.how = "filled"
        elif name in _ADDING and any(t.is_floating_point() for t in given):
            self.how = "added"
        for one in tensors_in(made):
            if one.dtype == torch.bool:
                self.held[id(one)] = one  # kept: its id may not be given away
        return made


def _is_number(value: Any) -> bool:
    """Tell whether `value` is one that no truth value can be."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and value.dtype != torch.bool
    return isinstance(value, int | float) and value not in (0, 1)


def _reckoning(subject: Subject, mask: torch.Tensor) -> str:
    reckons = _Reckons(mask)

    def own(value: Any) -> Any:
        return value if value is mask else fresh(value)

    try:
        with subject.environment(), torch.no_grad(), torch.random.fork_rng(devices=[]), reckons:
            subject.module(
                *map(own, subject.args), **{n: own(v) for n, v in subject.kwargs.items()}
            )
    except (Exception, SystemExit):
        return ""
    return reckons.how
