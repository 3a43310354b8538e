"""Turn one torch call into nodes: what it computes, and what it changes in place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mha_lint.capture.builder import GraphBuilder
from mha_lint.capture.canonical import canonical_call, in_place_arguments
from mha_lint.capture.inplace import Changed, Path
from mha_lint.capture.leaves import collect, holds_tensor, leaves, version, with_paths
from mha_lint.capture.names import canonical_name, raw_name
from mha_lint.capture.stand_ins import KeywordDropout

_ESCAPES = frozenset(("numpy", "__array__", "tolist", "item", "__float__", "__int__", "__index__"))
_METADATA = frozenset(
    ("transpose_", "t_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "as_strided_",
     "resize_", "resize_as_", "set_", "detach_")
)  # fmt: skip
_STATISTICS = frozenset(("batch_norm", "instance_norm", "native_batch_norm"))
_UNINITIALISED = frozenset(("empty", "empty_like", "new_empty"))
_FROM_DATA = frozenset(("tensor", "as_tensor", "asarray", "new_tensor"))
_PYTHON_DATA = (bool, int, float, complex, list, tuple, torch.Tensor)
_PLAIN = (type(None), bool, int, float, str, torch.Size, torch.dtype, torch.device)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one torch function before it is called."""

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


class CallRecorder:
    """Runs calls and records them with a `GraphBuilder`."""

    def __init__(self, builder: GraphBuilder, learned: Iterable[Any]) -> None:
        """Take functions that turned out to change their arguments in an earlier attempt."""
        self.builder = builder
        self.surprises: set[Any] = set()
        """Functions that changed an argument without being expected to."""
        self.implicit_dim = False
        self._learned = set(learned)
        self._entries: dict[Any, Entry] = {}

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``func(*args, **kwargs)`` and record it."""
        entry = self._entries.get(func)
        if entry is None:
            entry = self._entries[func] = self._entry(func)
        if entry.changes or "out" in kwargs:
            return self._changing(entry, func, args, kwargs)
        tensors: list[torch.Tensor] = []
        collect(args, tensors)
        if kwargs:
            collect(kwargs.values(), tensors)
        before = [version(t) for t in tensors]
        result = func(*args, **kwargs)
        if [version(t) for t in tensors] != before:
            self.surprises.add(func)
        if isinstance(result, _PLAIN):
            self.builder.escaped |= entry.escape
            return result
        return self._record(entry, func, args, kwargs, tensors, result)

    def _entry(self, func: Any) -> Entry:
        op, swapped, in_place = canonical_name(func)
        raw = raw_name(func)
        getter = getattr(func, "__name__", "") == "__get__"
        changes = ""
        written: tuple[int | str, ...] = _written(func)
        if isinstance(func, torch._ops.OpOverload) and raw not in _STATISTICS:
            changes = "schema" if written else ""
        elif raw == "__set__":
            changes = "data" if getattr(func.__self__, "__name__", "") == "data" else ""
        elif raw in _METADATA:
            changes = "metadata"
        elif raw in _STATISTICS:
            changes = "statistics"
        elif func in self._learned:
            changes = "any"
        elif in_place:
            changes = "first"
        return Entry(op, raw, swapped, changes, written, getter, raw in _ESCAPES)

    # -- calls that only compute ----------------------------------------------------------------

    def _record(
        self, entry: Entry, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
        tensors: list[torch.Tensor], result: Any,
    ) -> Any:  # fmt: skip
        builder = self.builder
        if isinstance(result, torch.Tensor):
            if any(result is t for t in tensors):
                if entry.op != "dropout" or type(result) is not torch.Tensor:
                    return result  # x.contiguous() of a contiguous x and the like
                # An idle dropout returns its input. It gets a tensor of its own, so that its node
                # is not mistaken for that of the input, which may have other uses.
                result = result.detach()
        elif not holds_tensor(result):
            builder.escaped |= entry.escape
            return result
        if entry.op in _UNINITIALISED:
            result.zero_()  # what happens to lie in memory is no value to compare
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
        if self.implicit_dim and entry.op in ("softmax", "log_softmax"):
            node.meta["implicit_dim"] = True
            self.implicit_dim = False
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
            return self._record(entry, func, args, kwargs, [t for _, t in places], result)
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


def _written(func: Any) -> tuple[int | str, ...]:
    """Return the places and names of the arguments that an aten overload says it writes."""
    if not isinstance(func, torch._ops.OpOverload):
        return ()
    found: list[int | str] = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found += [place, argument.name]
    return tuple(found)


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
