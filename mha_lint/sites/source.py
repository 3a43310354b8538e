"""What an operand of a site is made from: the nearest learned maps, inputs or learned tensors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch.fx import Node

from mha_lint.sites.contraction import Contraction, contraction_of
from mha_lint.sites.dependence import OPAQUE_LEARNED, Dependence, is_tensor, op, operands, shape

CONVOLUTIONS = frozenset(["conv1d", "conv2d", "conv3d"])
UNFLATTENING = frozenset(["view", "reshape", "unflatten"])


@dataclass(frozen=True, slots=True)
class Source:
    """One origin of an operand.

    ``kind``: "projection" (a learned linear map of data), "input" (an argument of the call),
    "learned" (made from parameters alone), "opaque" (an embedding or a recurrent layer) or
    "context" (the result of another contraction of data with data). ``node``: its output;
    ``reads``: the data that a projection is applied to; ``parameters``: its weight's names.
    ``channel_axes``: the axes of `node` that a learned map produced (for inputs the last one),
    all others are ``data_axes``. ``learned``: no input of the call is behind it, as behind learned
    queries, projected or not.
    """

    kind: str
    node: Node
    call: Node
    reads: Node | None
    parameters: tuple[str, ...]
    channel_axes: tuple[int, ...]
    data_axes: tuple[int, ...]
    in_width: int
    out_width: int
    learned: bool = False


def convolved(call: Node) -> tuple[object, object]:
    """Return what a convolution reads and its weight, by place or by keyword."""
    given = dict(zip(("input", "weight"), call.args, strict=False)) | call.kwargs
    return given.get("input"), given.get("weight")


class Sources:
    """Find the sources of any node of one recording."""

    def __init__(self, dependence: Dependence) -> None:
        """Prepare for the recording of `dependence`."""
        self.dependence = dependence
        self.recording = dependence.recording
        self._contractions: dict[Node, Contraction | None] = {}
        self._at: dict[Node, Source | None] = {}
        self._of: dict[Node, tuple[Source, ...]] = {}
        self._feeds: Counter[Node] | None = None
        self._behind: dict[frozenset[str], frozenset[Node]] = {}

    def contraction(self, node: Node) -> Contraction | None:
        """Return `node` as a contraction, if it is one."""
        if node not in self._contractions:
            self._contractions[node] = contraction_of(self.recording, node)
        return self._contractions[node]

    def is_mixing(self, node: Node) -> bool:
        """Return whether `node` contracts data with data.

        Not so where there are none: a call may be too short for what is summed over whole blocks.
        """
        found = self.contraction(node)
        if found is None:
            return False
        sides, recording = (found.left, found.right), self.dependence.recording
        if any(0 in shape(recording, side) for side in sides):
            return False
        return all(self.dependence.on_data(side) for side in sides)

    def learned_map(self, node: Node) -> tuple[Node, Node] | None:
        """Return (data, weight) when `node` applies a learned linear map to data."""
        dep = self.dependence
        if op(node) in CONVOLUTIONS:
            data, weight = convolved(node)
            if isinstance(data, Node) and isinstance(weight, Node) and dep.on_data(data):
                return (data, weight) if dep.learned_only(weight) else None
            return None
        found = self.contraction(node)
        if found is None:
            return None
        for data, weight in ((found.left, found.right), (found.right, found.left)):
            if dep.on_data(data) and dep.learned_only(weight):
                return data, weight
        return None

    def of(self, node: Node) -> list[Source]:
        """Return the sources of `node`, those that hold data first, the nearest of them first."""
        if node not in self._of:
            self._of[node] = tuple(self._search(node))
        return list(self._of[node])

    def feeds(self, node: Node) -> int:
        """Return how many learned maps read what was made from the source at `node`."""
        if self._feeds is None:
            self._feeds = Counter()
            for one in self.recording.graph.nodes:
                found = self.learned_map(one)
                if found is not None:
                    self._feeds.update({s.node for s in self.of(found[0])})
        return self._feeds[node]

    @cached_property
    def learned_products(self) -> tuple[Node, ...]:
        """Return the products that are made of parameters and constants alone."""
        learned = self.dependence.learned_only
        nodes = self.dependence.nodes
        return tuple(n for n in nodes if learned(n) and self.contraction(n) is not None)

    @cached_property
    def mixed_by_layout(self) -> frozenset[Node]:
        """Return what a product of data with data reaches through no other product of data."""
        return self._reached_from(self.is_mixing, lambda n: self.learned_map(n) is not None)

    def behind_softmax(self, names: frozenset[str]) -> frozenset[Node]:
        """Return what an operation of `names` reaches through no product of data with data."""
        if names not in self._behind:
            self._behind[names] = self._reached_from(lambda n: op(n) in names, self.is_mixing)
        return self._behind[names]

    def _reached_from(
        self, starts: Callable[[Node], bool], stops: Callable[[Node], bool]
    ) -> frozenset[Node]:
        """Return the data at which it `starts`, and all behind it up to where it `stops`."""
        found: set[Node] = set()
        for node in self.dependence.nodes:
            if self.dependence.on_data(node) and (
                (starts(node) or any(n in found for n in operands(node))) and not stops(node)
            ):
                found.add(node)
        return frozenset(found)

    def _search(self, node: Node) -> list[Source]:
        found: list[Source] = []
        seen: set[Node] = set()
        front = [node]
        whole = self.dependence.learned_only(node)
        while front:
            one = front.pop(0)
            if one in seen:
                continue
            seen.add(one)
            source = self.at(one)
            if source is None or (whole and self._holds_projection(one, source)):
                front += [n for n in operands(one) if self._matters(n)]
            else:
                found.append(source)
        found.sort(key=lambda s: (s.learned, -self.dependence.order[s.node]))
        return found

    def _holds_projection(self, node: Node, source: Source) -> bool:
        """Return whether behind `node`, which no input reaches, learned queries are projected."""
        if source.kind != "learned":
            return False
        front, seen = operands(node), set[Node]()
        while front:
            one = front.pop()
            if one in seen or not self.dependence.learned_only(one):
                continue
            seen.add(one)
            if self.map_of_parameters(one) is not None:
                return True
            if self.contraction(one) is None:
                front += operands(one)
        return False

    def _matters(self, node: Node) -> bool:
        return self.dependence.on_data(node) or self.dependence.learned_only(node)

    def at(self, node: Node) -> Source | None:
        """Return `node` as a source, or None when one must look further back."""
        if node not in self._at:
            self._at[node] = self._read(node)
        return self._at[node]

    def _read(self, node: Node) -> Source | None:
        dep = self.dependence
        if not is_tensor(self.recording, node):
            return None
        if not self.recording.values[node].is_floating_point():
            return None
        if node.op == "placeholder":
            return self._plain("input", node)
        if dep.learned_only(node):
            found = self.map_of_parameters(node)
            return self._projection(node, *found) if found else self._plain("learned", node)
        if op(node) in OPAQUE_LEARNED:
            return self._plain("opaque", node)
        if (
            op(node) == "getitem"
            and node.all_input_nodes
            and op(node.all_input_nodes[0]) in OPAQUE_LEARNED
        ):
            return self._plain("opaque", node)
        found = self.learned_map(node)
        if found is not None:
            return self._projection(node, *found)
        return self._plain("context", node) if self.is_mixing(node) else None

    def map_of_parameters(self, node: Node) -> tuple[Node, Node] | None:
        """Return (queries, weight) when `node` projects queries that are learned, or a fixed table."""
        found = self.contraction(node)
        if found is None or self.dependence.on_data(found.left):
            return None
        own = self.dependence.parameters
        if not self.dependence.learned_only(found.right) or own(found.left) == own(found.right):
            return None
        return found.left, found.right

    def _plain(self, kind: str, node: Node) -> Source:
        sizes = shape(self.recording, node)
        rank = len(sizes)
        axis = self._convolved_axis(node) if kind == "input" else None
        last = axis if axis is not None else rank - 1
        channel = (last,) if rank else ()
        width = sizes[last] if rank else 1
        data_axes = tuple(a for a in range(rank) if a not in channel)
        parameters = tuple(sorted(self.dependence.parameters(node)))
        return Source(
            kind, node, node, None, parameters, channel, data_axes, width, width,
            learned=kind == "learned",
        )  # fmt: skip

    def _convolved_axis(self, node: Node) -> int | None:
        """Return the axis of `node` that all its convolutions read as channels, if it has any."""
        rank = len(shape(self.recording, node))
        readers = [u for u in self.dependence.users(node) if op(u) in CONVOLUTIONS]
        axes = {rank - 1 - int(op(u)[4]) for u in readers if convolved(u)[0] is node}
        return axes.pop() if len(axes) == 1 and min(axes) >= 0 else None

    def _projection(self, node: Node, data: Node, weight: Node) -> Source:
        sizes = shape(self.recording, node)
        rank = len(sizes)
        if op(node) in CONVOLUTIONS:
            spatial = int(op(node)[4])
            channel: tuple[int, ...] = (rank - 1 - spatial,)
            kernel = shape(self.recording, weight)
            in_width = shape(self.recording, data)[channel[0]]
            width = kernel[0]
        else:
            found = self.contraction(node)
            assert found is not None
            on_left = found.left is weight
            _, labels = found.side(on_left)
            # A label that weight and data share (one small map for each head) tells heads apart.
            produced = {x for x in labels if x is not None and x in found.out_labels}
            channel = tuple(i for i, x in enumerate(found.out_labels) if x in produced)
            sized = dict(zip(labels, shape(self.recording, weight), strict=True))
            in_width = math.prod(sized[x] for x in found.summed)
            width = math.prod(sizes[i] for i in channel)
        out = self._unflattened(node, channel)
        shift = len(shape(self.recording, out)) - rank
        channel = tuple(c + shift for c in channel)
        rank += shift
        data_axes = tuple(i for i in range(rank) if i not in channel)
        names = tuple(sorted(self.dependence.parameters(weight)))
        learned = not self.dependence.on_data(data)
        return Source(
            "projection", out, node, data, names, channel, data_axes, in_width, width, learned
        )

    def _unflattened(self, node: Node, channel: tuple[int, ...]) -> Node:
        """Follow ``addmm(b, x.view(-1, C), W).view(B, T, C)`` to where the positions stand apart."""
        sizes = shape(self.recording, node)
        while len(sizes) == 2 and channel == (1,):
            users = [n for n in self.dependence.users(node) if is_tensor(self.recording, n)]
            if len(users) != 1:
                return node
            (user,) = users
            after = shape(self.recording, user)
            if op(user) in UNFLATTENING and len(after) > 2 and after[-1] == sizes[-1]:
                return user
            if op(user) == "add" and after == sizes and self._adds_parameter(user, node):
                node = user
                continue
            return node
        return node

    def _adds_parameter(self, user: Node, node: Node) -> bool:
        return all(n is node or self.dependence.learned_only(n) for n in operands(user))
