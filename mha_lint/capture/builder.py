"""The graph under construction: nodes, their values and places, and the constants they read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from mha_lint.capture.bindings import Bindings
from mha_lint.capture.frames import FrameWalker, Place, Position
from mha_lint.capture.known import KnownTensors
from mha_lint.capture.leaves import holds_tensor
from mha_lint.capture.walk import PLAIN

_INHERITED = ("module", "module_class", "call", "lowered", "tainted", "autocast")


@dataclass(frozen=True, slots=True)
class Context:
    """What is special about a call."""

    lowering: str | None = None
    """The one call that the operation is a part of, in plain operations."""
    autocast: torch.dtype | None = None
    implicit_dim: bool = False
    """Whether torch was left to choose the axis of a softmax."""


PLAINLY = Context()


class GraphBuilder:
    """Adds nodes to one graph; both recording modes write through it."""

    def __init__(
        self, walker: FrameWalker, known: KnownTensors, classes: Mapping[str, str]
    ) -> None:
        """Take the names of pre-existing tensors and the class names of submodules by path."""
        self.graph = fx.Graph()
        self.values: dict[fx.Node, Any] = {}
        self.positions: dict[fx.Node, tuple[Position, ...]] = {}
        self.bindings = Bindings(self.values, self._rebound)
        self.walker = walker
        self.known = known
        self.place, self.lasti, self.context = walker.root, 0, PLAINLY
        """Where and how what is added now was called; see `at`."""
        self.escaped = False
        """Whether tensor data has left for Python or numpy, from where it may come back unseen."""
        self._classes = classes
        self._names: set[str] = set()
        self._tainted = False

    def at(self, place: Place, lasti: int = 0, context: Context = PLAINLY) -> None:
        """Say where and how the calls were made that are added from now on."""
        self.place, self.lasti, self.context = place, lasti, context

    # -- nodes --------------------------------------------------------------------------------

    def placeholder(self, name: str, x: torch.Tensor) -> fx.Node:
        """Add an input."""
        node = self.graph.placeholder(identifier(name))
        node.meta.update(op="placeholder", name=name, stack=(), module="", module_class="", call=0)
        self.bound(node, x)
        return node

    def node(self, op: str, target: Callable[..., Any], args: Any, kwargs: Any) -> fx.Node:
        """Add the call of `target`, where `at` said."""
        # Arguments are set after creation, since create_node itself walks them at great length.
        node = self.graph.create_node("call_function", target, None, None, op)
        if args:
            node.args = args
        if kwargs:
            node.kwargs = kwargs
        self._mark(node, op)
        if self._tainted:
            reasons = (n.meta["tainted"] for n in node.all_input_nodes if "tainted" in n.meta)
            reason = next(reasons, None)
            if reason is not None:
                node.meta["tainted"] = reason
        return node

    def item(self, node: fx.Node, index: int, op: str = "getitem") -> fx.Node:
        """Add the selection of one item of a result."""
        item = self.graph.create_node("call_function", operator.getitem, None, None, "item")
        item.args = (node, index)
        for key in _INHERITED:
            if key in node.meta:
                item.meta[key] = node.meta[key]
        item.meta["op"] = op
        self.positions[item] = self.positions[node]
        return item

    def result(self, node: fx.Node, value: Any) -> None:
        """Let `node` stand for `value`, and items of it for the tensors within."""
        if isinstance(value, torch.Tensor):
            self.bound(node, value)
            return
        self.values[node] = value
        if isinstance(value, (tuple, list)):
            for place, item in enumerate(value):
                if isinstance(item, torch.Tensor) or holds_tensor(item):
                    self.result(self.item(node, place), item)

    def bound(self, node: fx.Node, x: torch.Tensor) -> None:
        """Let `node` stand for `x`."""
        self.values[node] = x
        self.describe(node, x)
        self.bindings.bind(x, node)

    def changed(self, node: fx.Node, x: torch.Tensor) -> None:
        """Let `node` stand for `x`, which was changed in place."""
        self.values[node] = x
        self.describe(node, x)
        self.bindings.change(x, node)

    @staticmethod
    def describe(node: fx.Node, x: torch.Tensor) -> None:
        """Note shape and type of the value of `node`."""
        node.meta["shape"] = tuple(x.shape)
        node.meta["dtype"] = x.dtype

    # -- arguments ----------------------------------------------------------------------------

    def argument(self, value: Any) -> Any:
        """Return `value` with each tensor replaced by the node of its present value."""
        kind = type(value)
        if kind in PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            return self.bindings.get(value) or self._foreign(value)
        if kind is tuple:
            return tuple([v if type(v) in PLAIN else self.argument(v) for v in value])
        if kind is list:
            return [v if type(v) in PLAIN else self.argument(v) for v in value]
        if kind is dict:
            return {k: self.argument(v) for k, v in value.items()}
        if kind is slice:
            start, stop, step = value.start, value.stop, value.step
            return slice(self.argument(start), self.argument(stop), self.argument(step))
        if isinstance(value, (tuple, list)) and holds_tensor(value):
            return tuple(self.argument(v) for v in value)
        return value

    def node_of(self, x: torch.Tensor) -> fx.Node:
        """Return the node of the present value of `x`; a constant where no call made it."""
        return self.bindings.get(x) or self._foreign(x)

    def _foreign(self, x: torch.Tensor) -> fx.Node:
        kind, name = self.known.describe(x, self.place)
        if kind == "unrecorded":
            # Subclasses, numpy-free casts and wrappers make new tensors on memory that is known.
            node = self.bindings.view_of_known(x)
            if node is not None:
                return node
        node = self.graph.create_node("get_attr", self._attribute(f"{kind}_{name}"), (), {})
        self._mark(node, "get_attr")
        if kind in ("parameter", "buffer"):
            node.meta[kind] = name
            node.meta["trainable"] = x.requires_grad
        else:
            node.meta["constant"] = name
            if kind == "unrecorded" and (self.escaped or x.numel() > 1):
                self._taint(node, f"{name} was made by something that torch does not report")
        if self.bindings.changed_before(x):
            self._taint(node, f"the memory of {name} was changed before through another tensor")
        self.bound(node, x)
        return node

    def _attribute(self, text: str) -> str:
        stem = name = identifier(text)
        while name in self._names:
            name = f"{stem}_{len(self._names)}"
        self._names.add(name)
        return name

    def _taint(self, node: fx.Node, reason: str) -> None:
        node.meta["tainted"] = reason
        self._tainted = True

    def _mark(self, node: fx.Node, op: str) -> None:
        place = self.walker.running(self.place)
        self.positions[node] = place.positions(self.lasti)
        meta = node.meta
        meta["op"] = op
        meta["module"] = place.module
        meta["module_class"] = self._classes.get(place.module, "")
        meta["call"] = place.call
        context = self.context
        if context is PLAINLY:
            return
        if context.lowering is not None:
            meta["lowered"] = context.lowering
        if context.autocast is not None:
            meta["autocast"] = context.autocast

    def _rebound(self, op: str, target: Any, args: tuple[fx.Node, ...], x: torch.Tensor) -> fx.Node:
        node = self.node(op, target, args, {})
        self.values[node] = x
        self.describe(node, x)
        return node


def identifier(text: str) -> str:
    """Return `text` as a Python name."""
    cleaned = "".join(c if c.isalnum() and c.isascii() else "_" for c in text).strip("_")
    return cleaned if cleaned and not cleaned[0].isdigit() else f"_{cleaned}"
