"""Turn torch calls into nodes: what they compute, and what they change in place.

While the user's code runs, a call that only computes is merely noted: function, arguments, result
and place. Nodes are made of what was noted at the end, or before the next call that changes a
value, so that arguments are seen as they were. This keeps the cost to a forward small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import (
    BuiltinFunctionType,
    FrameType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

import torch
from torch import fx

from mha_lint.capture.builder import PLAINLY, Context, GraphBuilder
from mha_lint.capture.canonical import canonical_call, in_place_arguments
from mha_lint.capture.entries import UNINITIALISED, Entry, entry_of
from mha_lint.capture.frames import Place
from mha_lint.capture.inplace import Changed, Path
from mha_lint.capture.leaves import collect, holds_tensor, leaves, version, with_paths
from mha_lint.capture.stand_ins import KeywordDropout

_FROM_DATA = frozenset(("tensor", "as_tensor", "asarray", "new_tensor"))
CONTAINERS = frozenset((tuple, list, dict))
_NATIVE = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType)
"""The types of torch's own functions, methods and getters."""
_PYTHON_DATA = (bool, int, float, complex, list, tuple, torch.Tensor)
PLAIN_RESULTS = frozenset(
    (type(None), bool, int, float, str, torch.Size, torch.dtype, torch.device)
)
"""Types of results without a tensor."""

Noted = tuple[
    Entry,
    Any,
    tuple[Any, ...],
    dict[str, Any] | None,
    Any,
    Place,
    int,
    Context | Callable[..., Any] | None,
]
"""One call: entry, function, arguments, keyword arguments, result, place, instruction, and what is
special: a context, or the function that computes the same in plain operations."""


class CallRecorder:
    """Runs calls and records them with a `GraphBuilder`."""

    def __init__(self, builder: GraphBuilder, learned: Iterable[Any]) -> None:
        """Take functions that turned out to change their arguments in an earlier attempt."""
        self.builder = builder
        self.surprises: set[Any] = set()
        """Functions that changed an argument without being expected to."""
        self.implicit_dim = False
        self.lowering: str | None = None
        """The call that what runs now stands for."""
        self.mode: AbstractContextManager[Any] = nullcontext()
        """Under which torch functions are recorded."""
        self.entries: dict[Any, Entry] = {}
        self.noted: list[Noted] = []
        self._learned = frozenset(learned)
        self._unfolding: tuple[Place, int] | None = None

    def entry(self, func: Any) -> Entry:
        """Return what is known of `func`."""
        known = self.entries.get(func)
        if known is None:
            known = self.entries[func] = entry_of(func, self._learned)
        return known

    def run(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> Any:
        """Run ``func(*args, **kwargs)``, called by `frame`, and record it."""
        entry = self.entry(func)
        if entry.changes or "out" in kwargs:
            self.settle()
            self.builder.at(*self._here(frame), self._context(entry, args))
            return self._changing(entry, func, args, kwargs)
        result = (
            func(*args, **kwargs) if entry.trusted else self._watched(entry, func, args, kwargs)
        )
        if entry.escape:  # what is noted so far was made of no such data
            self.settle()
            self.builder.escaped = True
        if type(result) in PLAIN_RESULTS:
            return result
        if entry.aside:
            result = _set_apart(entry, args, kwargs, result)
        context = self._context(entry, args)
        self.noted.append(
            (entry, func, kept(args), kept(kwargs), result, *self._here(frame), context)
        )
        return result

    def note_lowered(
        self, func: Any, plain: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
        result: Any, frame: FrameType,
    ) -> None:  # fmt: skip
        """Note a call that is recorded as what `plain` does, computed when it is settled."""
        entry = self.entry(func)
        self.noted.append((entry, func, args, kwargs, result, *self._here(frame), plain))

    def settle(self) -> None:
        """Make nodes of the calls noted so far."""
        noted, self.noted = self.noted, []
        for entry, func, args, kwargs, result, place, lasti, special in noted:
            if special is None:
                self.builder.at(place, lasti)
            elif isinstance(special, Context):
                self.builder.at(place, lasti, special)
            else:
                self._unfold(entry, special, args, kwargs or {}, result, (place, lasti))
                continue
            self._record(entry, func, args, kwargs or {}, result)

    def _unfold(
        self, entry: Entry, plain: Callable[..., Any], args: tuple[Any, ...],
        kwargs: dict[str, Any], result: Any, where: tuple[Place, int],
    ) -> None:  # fmt: skip
        """Record what `plain` does, and let its last node stand for the `result` of the call."""
        self.lowering, self._unfolding = entry.raw, where
        try:
            # Settled from within aten operations, torch functions are switched off.
            with torch._C._EnableTorchFunction(), self.mode:
                parts = plain(*args, **kwargs)
            self.settle()
        finally:
            self.lowering = self._unfolding = None
        self.builder.at(*where, Context(entry.raw))
        self.builder.bound(self.builder.node_of(parts), result)

    def _here(self, frame: FrameType) -> tuple[Place, int]:
        return self._unfolding or (self.builder.walker.place(frame), frame.f_lasti)

    def _context(self, entry: Entry, args: tuple[Any, ...]) -> Context:
        autocast = _autocast_of(args) if torch._C._is_any_autocast_enabled() else None
        implicit = self.implicit_dim and entry.softmax
        if implicit:
            self.implicit_dim = False
        if autocast is None and not implicit and self.lowering is None:
            return PLAINLY
        return Context(self.lowering, autocast, implicit)

    def _watched(
        self, entry: Entry, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run `func`, and look whether it changes an argument.

        A function of torch itself is looked at once, one of the user's each time.
        """
        tensors = leaves((args, kwargs))
        before = [version(t) for t in tensors]
        result = func(*args, **kwargs)
        if [version(t) for t in tensors] != before:
            self.surprises.add(func)
        elif tensors and type(func) in _NATIVE:
            entry.trust()
        return result

    # -- calls that only compute ----------------------------------------------------------------

    def _record(
        self, entry: Entry, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Any:
        builder = self.builder
        tensors: list[torch.Tensor] = []
        collect(args, tensors)
        if kwargs:
            collect(kwargs.values(), tensors)
        if isinstance(result, torch.Tensor):
            if any(result is t for t in tensors):
                return result  # x.contiguous() of a contiguous x and the like
        elif not holds_tensor(result):
            return result
        if entry.raw == "as_strided":
            node = builder.bindings.view_of_known(result)
            if node is not None:
                return result
        if entry.raw in _FROM_DATA and not isinstance(args[0] if args else 0, _PYTHON_DATA):
            if not builder.escaped:  # numpy data that cannot depend on recorded tensors
                builder.known.add(result, "constant", f"torch.{entry.raw}")
            if not tensors:
                return result
        node = self._call(entry, func, builder.argument(args), builder.argument(kwargs))
        builder.result(node, result)
        return result

    def _call(self, entry: Entry, func: Any, args: Any, kwargs: Any) -> fx.Node:
        if entry.getter:
            return self.builder.node(entry.op, getattr, (args[0], entry.raw), {})
        target, args, kwargs = canonical_call(
            entry.op, entry.raw, func, args, kwargs, swapped=entry.swapped
        )
        node = self.builder.node(entry.op, target, args, kwargs)
        if self.builder.context.implicit_dim:
            node.meta["implicit_dim"] = True
        return node

    # -- calls that change their arguments --------------------------------------------------------

    def _changing(
        self, entry: Entry, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if entry.changes in ("data", "metadata"):
            return self._rebinding(entry, func, args, kwargs)
        places = _places(entry, args, kwargs)
        builder = self.builder
        new_args, new_kwargs = builder.argument(args), builder.argument(kwargs)
        before = [version(t) for _, t in places]
        for _, t in places:
            builder.bindings.snapshot(t)
        result = func(*args, **kwargs)
        changed = [
            (path, t)
            for (path, t), v in zip(places, before, strict=True)
            if entry.changes != "any" or version(t) != v
        ]
        if not changed:
            return self._record(entry, func, args, kwargs, _set_apart(entry, args, kwargs, result))
        if "out" in kwargs:
            self._out(entry, func, new_args, new_kwargs, [t for _, t in changed], result)
            return result
        others = [t for t in leaves(result) if not any(t is c for _, c in changed)]
        if entry.changes == "first":
            new_args, new_kwargs = in_place_arguments(entry.op, new_args, new_kwargs)
        if entry.op == "dropout":  # named arguments, of which the function in place knows no names
            func = KeywordDropout(func)
        target = Changed(func, [p for p, _ in changed], name=entry.op, with_result=bool(others))
        node = builder.node(entry.op, target, new_args, new_kwargs)
        if len(changed) == 1 and not others:
            builder.changed(node, changed[0][1])
            return result
        builder.values[node] = (result if others else None, *(t for _, t in changed))
        if others:
            builder.result(builder.item(node, 0), result)
        for place, (_, t) in enumerate(changed):
            builder.changed(builder.item(node, place + 1), t)
        return result

    def _out(
        self, entry: Entry, func: Any, args: Any, kwargs: dict[str, Any],
        outs: list[torch.Tensor], result: Any,
    ) -> None:  # fmt: skip
        """Record a call with ``out=`` as the call without it."""
        builder = self.builder
        node = self._call(entry, func, args, {k: v for k, v in kwargs.items() if k != "out"})
        builder.values[node] = result
        for place, t in enumerate(outs):
            part = node if len(outs) == 1 else builder.item(node, place)
            if any(n.meta.get("dtype", t.dtype) is not t.dtype for n in node.all_input_nodes):
                builder.values[part] = t.detach().clone()
                part = builder.node("to", torch.Tensor.to, (part, t.dtype), {})
            builder.changed(part, t)

    def _rebinding(self, entry: Entry, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Record ``x.data = y`` and ``x.transpose_(0, 1)``: no memory changes, but what x shows."""
        builder = self.builder
        new_args, new_kwargs = builder.argument(args), builder.argument(kwargs)
        x: torch.Tensor = args[0]
        old = new_args[0]
        if builder.values.get(old) is x:
            builder.values[old] = x.detach().clone()
        result = func(*args, **kwargs)
        if entry.changes == "data":
            node = builder.node("detach", torch.Tensor.detach, (new_args[1],), {})
        elif entry.raw == "detach_":
            return result
        else:
            target = Changed(func, [(0,)], name=entry.op)
            node = builder.node(entry.op, target, new_args, new_kwargs)
        builder.bound(node, x)
        return result


def _autocast_of(args: tuple[Any, ...]) -> torch.dtype | None:
    """Return the type that operations on the device of `args` are cast to, if they are."""
    device = next((x.device.type for x in leaves(args)), "cpu")
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def _set_apart(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Return `result` as a tensor of its own that has a value.

    An idle dropout returns its input; its node must not be mistaken for that of the input, which
    may have other uses. What happens to lie in new memory is no value to compare.
    """
    if entry.op in UNINITIALISED:
        result.zero_()
    elif type(result) is torch.Tensor and any(result is t for t in leaves((args, kwargs))):
        return result.detach()
    return result


def kept(value: Any) -> Any:
    """Return `value` with its own lists and dicts, which the user's code may go on to change."""
    kind = type(value)
    if kind is tuple:
        for v in value:
            if type(v) in CONTAINERS:
                return tuple([kept(v) for v in value])
        return value
    if kind is list:
        return [kept(v) for v in value]
    if kind is dict:
        return {k: kept(v) for k, v in value.items()}
    return value


def _places(
    entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[Path, torch.Tensor]]:
    """Return the arguments that the call may change, with their paths."""
    if "out" in kwargs:
        return with_paths(kwargs["out"], ("out",))
    if entry.changes == "first":
        if args:
            return with_paths(args[0], (0,))
        key = "input" if "input" in kwargs else "self"
        return with_paths(kwargs.get(key), (key,))
    if entry.changes == "statistics":  # changed without a new version, and only in training
        training = len(args) > 5 and args[5]
        return [item for i in (3, 4) for item in with_paths(args[i], (i,))] if training else []
    all_args: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    return [
        item
        for key, value in all_args
        if entry.changes != "schema" or key in entry.written
        for item in with_paths(value, (key,))
    ]
