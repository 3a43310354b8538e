"""What a node of a recording depends on: inputs, learned parameters, other nodes.

Edges carry values only. An operation that reads no more than the shape of its operand
(``zeros_like``, ``new_full``) does not make its result depend on that operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import torch
from torch.fx import Node

from mha_lint.capture import Recording
from mha_lint.model.source import Frame
from mha_lint.sites.nodes import Nodes, Numbering, numbers_in

SHAPE_ONLY = frozenset(
    [
        "zeros_like",
        "ones_like",
        "full_like",
        "empty_like",
        "rand_like",
        "randn_like",
        "randint_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
        "new_tensor",
    ]
)
LIKE_ANOTHER = frozenset(["expand_as", "view_as", "reshape_as", "type_as", "to"])
"""Operations that read no more than the shape or the type of their second operand."""
OPAQUE_LEARNED = frozenset(["embedding", "embedding_bag", "lstm", "gru", "rnn_tanh", "rnn_relu"])


def op(node: Node) -> str:
    """Return the canonical name of the operation."""
    return str(node.meta.get("op", node.op))


def stack_of(node: Node | None) -> tuple[Frame, ...]:
    """Return the user's frames that led to `node`, outermost first."""
    return tuple(node.meta.get("stack", ())) if node is not None else ()


def operands(node: Node) -> list[Node]:
    """Return the nodes whose values `node` reads."""
    if op(node) in SHAPE_ONLY:
        return []
    return list(node.all_input_nodes)[: 1 if op(node) in LIKE_ANOTHER else None]


MOST = 10_000
"""Nodes up to which what each depends on is worked out once: as many bits are kept for each."""


class Dependence:
    """Order, dependence and reachability in one recording."""

    def __init__(self, recording: Recording) -> None:
        """Walk the graph of `recording` once."""
        self.recording = recording
        self.nodes: list[Node] = list(recording.graph.nodes)
        self._numbering = Numbering(self.nodes)
        self.order: dict[Node, int] = self._numbering.number
        self._operands: dict[Node, list[Node]] = {}
        self._on_data: dict[Node, bool] = {}
        self._on_parameters: dict[Node, int] = {}
        self._names: list[str] = []
        self._users: dict[Node, list[Node]] = {}
        self._above: list[int] | None = None
        self._below: list[int] | None = None
        placeholders = set(recording.placeholders)
        known: dict[str, int] = {}
        for node in self.nodes:
            read = self._operands[node] = operands(node)
            own = 0
            name = node.meta.get("parameter")
            if name:
                own = 1 << known.setdefault(name, len(known))
            on_data = node in placeholders
            for one in read:
                self._users.setdefault(one, []).append(node)
                on_data = on_data or self._on_data[one]
                own |= self._on_parameters[one]
            self._on_data[node] = on_data
            self._on_parameters[node] = own
        self._names = list(known)
        self.live = self.ancestors(recording.outputs)
        self.picks = any(self._is_pick(node) for node in self.live)
        """Whether the data itself decides which elements are read: code that may fail on other data."""

    def _is_pick(self, node: Node) -> bool:
        """Return whether `node` holds places or a choice that were made from data."""
        if self._selects(node):
            return True
        value = self.recording.values.get(node)
        if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
            return False
        if not self._on_data[node]:
            return False
        whole = [n for n in operands(node) if not is_tensor(self.recording, n)]  # (values, places)
        made_from = [*operands(node), *(m for n in whole for m in operands(n))]
        return any(is_number(self.recording, n) for n in made_from)

    def _selects(self, node: Node) -> bool:
        """Return whether a mask of the call decides how many elements `node` has, or takes."""
        read = operands(node)
        if op(node) in ("nonzero", "argwhere"):
            masks = read
        elif op(node) in ("index", "masked_select"):
            masks = read[1:]
        elif op(node) in ("setitem", "index_put") and len(read) > 2:
            value = self.recording.values.get(read[-1])
            several = isinstance(value, torch.Tensor) and value.numel() > 1
            masks = read[1:-1] if several else []
        else:
            return False
        return any(self._on_data[n] and _is_mask(self.recording, n) for n in masks)

    def on_data(self, node: Node) -> bool:
        """Return whether the value of `node` depends on an input of the call."""
        return self._on_data[node]

    def parameters(self, node: Node) -> frozenset[str]:
        """Return the names of the parameters that `node` depends on."""
        return frozenset(self._names[i] for i in numbers_in(self._on_parameters[node]))

    def learned_only(self, node: Node) -> bool:
        """Return whether `node` is made from parameters and constants, with a parameter in it."""
        return not self._on_data[node] and bool(self._on_parameters[node])

    def users(self, node: Node) -> list[Node]:
        """Return the nodes that read the value of `node`."""
        return self._users.get(node, [])

    def ancestors(self, nodes: Iterable[Node]) -> Nodes:
        """Return `nodes` and all that they depend on."""
        bits = 0
        if self._small:
            above = self._all_above()
            for node in nodes:
                bits |= above[self.order[node]]
        else:
            bits = self._numbering.bits(_closure(nodes, self._operands.__getitem__))
        return Nodes(self._numbering, bits)

    def descendants(self, nodes: Iterable[Node]) -> Nodes:
        """Return `nodes` and all that depends on them."""
        bits = 0
        if self._small:
            below = self._all_below()
            for node in nodes:
                at = self.order[node]
                bits |= below[at] << at
        else:
            bits = self._numbering.bits(_closure(nodes, self.users))
        return Nodes(self._numbering, bits)

    @property
    def _small(self) -> bool:
        return len(self.order) <= MOST

    def _all_above(self) -> list[int]:
        """Return the bits of what each node depends on, its own among them."""
        if self._above is None:
            order, above = self.order, list[int]()
            for at, node in enumerate(self.nodes):
                bits = 1 << at
                for one in self._operands[node]:
                    bits |= above[order[one]]
                above.append(bits)
            self._above = above
        return self._above

    def _all_below(self) -> list[int]:
        """Return the bits of what depends on each node, counted from its own."""
        if self._below is None:
            order, below = self.order, [1] * len(self.order)
            for at, node in reversed(list(enumerate(self.nodes))):
                for one in self.users(node):
                    user = order[one]
                    below[at] |= below[user] << (user - at)
            self._below = below
        return self._below

    def between(self, start: Node, end: Node) -> list[Node]:
        """Return the nodes on the paths from `start` (left out) to `end` (kept), in order."""
        on_path = self.descendants([start]) & self.ancestors([end])
        return [node for node in on_path if node is not start]

    def bottlenecks(self, start: Node, end: Node) -> list[Node]:
        """Return the nodes that every path from `start` (left out) to `end` (kept) passes, in order."""
        path = self.between(start, end)
        place = {node: i for i, node in enumerate(path)}
        furthest = -1
        found: list[Node] = []
        for node in (start, *path):
            if node is not start and furthest <= place[node]:
                found.append(node)
            furthest = max([furthest, *(place[u] for u in self.users(node) if u in place)])
        return found

    def inputs_of(self, node: Node) -> frozenset[str]:
        """Return the names of the inputs that `node` depends on."""
        return frozenset(self._inputs[n] for n in self.ancestors([node]) & self._inputs.keys())

    @cached_property
    def _inputs(self) -> dict[Node, str]:
        return dict(zip(self.recording.placeholders, self.recording.input_names, strict=True))

    @cached_property
    def live_parameters(self) -> frozenset[str]:
        """Return the names of the parameters that an output depends on."""
        return frozenset(n.meta["parameter"] for n in self.live if n.meta.get("parameter"))

    @cached_property
    def dtypes(self) -> frozenset[torch.dtype]:
        """Return the types of all tensors of the recording."""
        return frozenset(n.meta["dtype"] for n in self.nodes if "dtype" in n.meta)


def _closure(start: Iterable[Node], step: Callable[[Node], list[Node]]) -> set[Node]:
    seen: set[Node] = set()
    front = list(start)
    while front:
        node = front.pop()
        if node not in seen:
            seen.add(node)
            front += step(node)
    return seen


def is_tensor(recording: Recording, node: Node) -> bool:
    """Return whether the recorded value of `node` is a tensor."""
    return isinstance(recording.values.get(node), torch.Tensor)


def _is_mask(recording: Recording, node: Node) -> bool:
    value = recording.values.get(node)
    return isinstance(value, torch.Tensor) and value.dtype is torch.bool


def is_number(recording: Recording, node: Node) -> bool:
    """Return whether the recorded value of `node` is a tensor of real floats."""
    value = recording.values.get(node)
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def shape(recording: Recording, node: Node) -> tuple[int, ...]:
    """Return the recorded shape of `node`."""
    return tuple(recording.values[node].shape)
