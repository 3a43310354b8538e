"""One part of a large recording as a recording of its own, small enough to be measured.

What comes from outside the part is drawn at random. Weights keep the sizes that the heads are made
from, but read few of the model's channels, or write few: a projection to 128 heads of 128 takes as
much memory then as its output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx import Node

from mha_lint.capture import Recording
from mha_lint.capture.recording import Faithfulness
from mha_lint.capture.state import recordable, seeded
from mha_lint.sites.contraction import Contraction, contraction_of
from mha_lint.sites.dependence import op, operands
from mha_lint.sites.parts import Part
from mha_lint.targets.large import has_no_values

NARROW = 24
"""Channels of the model that a narrowed weight reads or writes, at least."""
STEP = 4
MOST = 1 << 25
"""Elements that the weights of one part may have in all: 256 MB in float64."""
EACH = 1 << 22
"""Elements above which one weight counts as too large, in the last resort."""
WIDEST = 1 << 22
"""Elements of a value on the way above which a part takes too long to measure: 32 heads of 256 keys
for 256 queries, in two samples."""
WAYS = (
    (True, True, False),
    (True, False, False),
    (False, True, False),
    (False, False, False),
    (False, True, True),
    (False, False, True),
)
"""Whether weights read few channels, and write few, and whether what large ones give is drawn."""
_KEEPING = frozenset(["dropout", "contiguous", "clone", "to", "float", "type_as", "identity"])


def cut(recording: Recording, part: Part, *, seed: int = 0) -> Recording | None:
    """Return `part` as a recording, or None where it cannot be run apart from the rest."""
    for way in WAYS:
        try:
            with recordable():
                seeded(seed)
                return _Cut(recording, part, *way).made()
        except _TooLargeError:
            continue
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError):
            continue
    return None


class _TooLargeError(Exception):
    """The weights or values of the part would take too much memory."""


@dataclass(slots=True)
class _Cut:
    recording: Recording
    part: Part
    narrow_in: bool
    narrow_out: bool
    drawn: bool
    graph: fx.Graph = field(default_factory=fx.Graph)
    new: dict[Node, Node] = field(default_factory=dict)
    values: dict[Node, Any] = field(default_factory=dict)
    inputs: list[Node] = field(default_factory=list)
    parameters: dict[str, Node] = field(default_factory=dict)
    narrowed: dict[int, int] = field(default_factory=dict)
    used: int = 0
    serial: int = 0

    def made(self) -> Recording:
        """Copy the part's nodes, run each, and return the whole."""
        held = set(self.part.nodes)
        last = self._last(held)
        maps = {n: m for n in self.part.nodes if (m := self._map(n)) is not None}
        anew = self._made_anew(held, maps)
        self._begin(held, maps, anew)
        for node in self.part.nodes:
            if node not in anew:
                self._copied(node, maps.get(node), last)
        outputs = tuple(self.new[n] for n in last)
        self.graph.output(outputs).meta.update(op="output", stack=())
        return Recording(
            graph=self.graph,
            placeholders=tuple(self.inputs),
            inputs=tuple(self.values[n] for n in self.inputs),
            input_names=tuple(n.meta["name"] for n in self.inputs),
            values=self.values,
            outputs=outputs,
            output_names=tuple(f"[{i}]" for i in range(len(outputs))),
            parameters=self.parameters,
            module=self.recording.module,
            faithful=Faithfulness(True, 0.0, "a part of a larger recording"),
            drawn=self.used > 0,
            widths={narrow: width for width, narrow in self.narrowed.items()},
        )

    def _last(self, held: set[Node]) -> list[Node]:
        """Return the nodes whose values leave the part."""
        return [
            n
            for n in self.part.nodes
            if isinstance(self.recording.values.get(n), torch.Tensor)
            and any(u not in held for u in n.users)
        ] or [self.part.nodes[-1]]

    # -- what comes from outside ------------------------------------------------------------------

    def _made_anew(self, held: set[Node], maps: dict[Node, _Map]) -> set[Node]:
        """Return the weights that are made for each map of its own, and what only turns them."""
        found: set[Node] = set()
        for one in maps.values():
            if not self._is_fake(one.weight):
                continue
            chain = [one.weight]
            while chain[-1].op == "call_function":
                chain += operands(chain[-1])
            users = {u for node in chain for u in node.users if u in held}
            if all(u in maps or u in chain for u in users):
                found |= set(chain)
        return found

    def _begin(self, held: set[Node], maps: dict[Node, _Map], anew: set[Node]) -> None:
        """Make inputs of what flows in, and find those whose channels only learned maps read."""
        outside = dict.fromkeys(
            n for node in self.part.nodes for n in _nodes_in((node.args, node.kwargs))
            if n not in held
        )  # fmt: skip
        for node in outside:
            if node in anew:
                continue
            value = self.recording.values.get(node)
            if node.op == "get_attr":
                self._constant(node)
            elif isinstance(value, torch.Tensor):
                self._input(node, self._axis_to_narrow(node, held, maps))
            else:
                raise KeyError(node)

    def _axis_to_narrow(self, node: Node, held: set[Node], maps: dict[Node, _Map]) -> int | None:
        """Return the axis of `node` that nothing but learned maps read, all along it."""
        if not self.narrow_in or not self._is_fake(node):
            return None
        axes: set[int] = set()
        for user in node.users:
            if user not in held:
                continue
            found = maps.get(user)
            if found is None or found.data is not node or len(found.data_axes) != 1:
                return None
            if not self._is_fake(found.weight):
                return None
            axes.add(found.data_axes[0])
        return axes.pop() if len(axes) == 1 else None

    def _input(self, node: Node, narrowed: int | None) -> None:
        value = self.recording.values[node]
        if has_no_values(value):
            shape = list(value.shape)
            if narrowed is not None:
                shape[narrowed] = self._narrow(shape[narrowed])
            value = self._drawn(shape, value.dtype)
        name = f"input_{len(self.inputs)}"
        new = self.graph.placeholder(name)
        new.meta.update(op="placeholder", name=name, stack=(), module="", module_class="", call=0)
        new.meta["aliases"] = (name,)
        self.inputs.append(new)
        self._holds(node, new, value)

    def _constant(self, node: Node) -> None:
        value = self.recording.values[node]
        if has_no_values(value):
            value = self._weight(value.shape, value.dtype)
        new = self.graph.create_node("get_attr", str(node.target), (), {})
        new.meta.update(node.meta)
        self._holds(node, new, value)

    # -- what the part computes -------------------------------------------------------------------

    def _copied(self, node: Node, found: _Map | None, last: list[Node]) -> None:
        own = self.new
        if found is not None and self.drawn and self._is_large(found, node, last):
            self._input(node, None)
            return
        if found is not None and found.weight not in own:
            weight = self._weight_for(node, found, last)
            own = {**own, found.weight: weight, **self._biases_for(node, found, weight)}
        args = fx.node.map_arg(node.args, own.__getitem__)
        kwargs = fx.node.map_arg(node.kwargs, own.__getitem__)
        new = self.graph.create_node("call_function", node.target, None, None, str(node.meta["op"]))
        new.args, new.kwargs = args, kwargs
        new.meta.update(node.meta)
        value = self._run(new)
        if isinstance(value, torch.Tensor):
            if value.numel() > WIDEST:
                raise _TooLargeError
            narrowed = node in last or value.shape == tuple(node.meta.get("shape", value.shape))
            if not narrowed and not self._leads_out(node, last):
                raise RuntimeError("a size that was narrowed is used on the way")
        self._holds(node, new, value)

    def _is_large(self, found: _Map, node: Node, last: list[Node]) -> bool:
        """Return whether a weight is too large, though its result may leave narrowed."""
        if not self._is_fake(found.weight) or (self.narrow_out and self._leads_out(node, last)):
            return False
        return bool(self.recording.values[found.weight].numel() > EACH)

    def _run(self, node: Node) -> Any:
        def given(value: Node) -> Any:
            return self.values[value]

        target: Any = node.target
        args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), _valued(given))
        return target(*args, **kwargs)

    def _weight_for(self, node: Node, found: _Map, last: list[Node]) -> Node:
        """Make a weight for one map, narrowed where its data is and where its result leaves."""
        shape = list(self.recording.values[found.weight].shape)
        data = self.values[self.new[found.data]]
        for axis, other in found.summed:
            shape[axis] = data.shape[other]
        if self.narrow_out and self._leads_out(node, last) and len(found.kept) == 1:
            (axis,) = found.kept
            shape[axis] = self._narrow(shape[axis])
        name = found.name
        new = self.graph.create_node("get_attr", f"weight_{self.serial}", (), {})
        self.serial += 1
        new.meta.update(
            op="get_attr", stack=(), module=node.meta.get("module", ""),
            module_class=node.meta.get("module_class", ""), call=node.meta.get("call", 0),
            parameter=name, trainable=True,
        )  # fmt: skip
        value = self._weight(shape, self.recording.values[found.weight].dtype)
        self.parameters[name] = new
        self.values[new] = value
        new.meta.update(shape=tuple(value.shape), dtype=value.dtype)
        return new

    def _biases_for(self, node: Node, found: _Map, weight: Node) -> dict[Node, Node]:
        """Return what stands for the bias of a map that writes fewer channels than the model's."""
        whole = tuple(self.recording.values[found.weight].shape)
        kept = {whole[a]: self.values[weight].shape[a] for a in found.kept}
        biases: dict[Node, Node] = {}
        for read in node.all_input_nodes:
            value = self.recording.values.get(read)
            if read is found.weight or read is found.data or not isinstance(value, torch.Tensor):
                continue
            size = value.shape[-1] if value.dim() else 0
            if value.dim() == 1 and kept.get(size, size) != size:
                short = self.values[self.new[read]][: kept[size]]
                new = self.graph.create_node("get_attr", f"bias_{self.serial}", (), {})
                self.serial += 1
                new.meta.update(self.new[read].meta)
                self._holds(read, new, short)
                biases[read] = new
        return biases

    def _leads_out(self, node: Node, last: list[Node]) -> bool:
        """Return whether nothing but a dropout or a cast stands between `node` and the outside."""
        if node in last:
            return True
        users = list(node.users)
        return len(users) == 1 and op(users[0]) in _KEEPING and self._leads_out(users[0], last)

    def _narrow(self, width: int) -> int:
        """Return how many channels stand for a width of the model, as many for the same one."""
        if width <= NARROW:
            return width
        return self.narrowed.setdefault(width, NARROW + STEP * len(self.narrowed))

    # -- small things -----------------------------------------------------------------------------

    def _map(self, node: Node) -> _Map | None:
        found = contraction_of(self.recording, node)
        if found is None:
            return None
        for data, weight in ((found.left, found.right), (found.right, found.left)):
            name = _parameter_of(weight)
            if name is not None and _parameter_of(data) is None:
                return _Map.of(found, data, weight, name)
        return None

    def _is_fake(self, node: Node) -> bool:
        value = self.recording.values.get(node)
        return isinstance(value, torch.Tensor) and has_no_values(value)

    def _holds(self, old: Node, new: Node, value: Any) -> None:
        self.new[old] = new
        if "parameter" in new.meta:
            self.parameters[new.meta["parameter"]] = new
        self.values[new] = value
        if isinstance(value, torch.Tensor):
            new.meta.update(shape=tuple(value.shape), dtype=value.dtype)

    def _weight(self, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        sizes = torch.Size(shape)
        self.used += sizes.numel()
        if self.used > MOST:
            raise _TooLargeError
        fan_in = sizes[-1] if len(sizes) > 1 else 1
        return torch.nn.Parameter(self._drawn(sizes, dtype) / fan_in**0.5, requires_grad=False)

    def _drawn(self, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        if dtype == torch.bool:
            return torch.ones(shape, dtype=dtype)
        if not dtype.is_floating_point:
            return torch.zeros(shape, dtype=dtype)
        return torch.randn(shape, dtype=dtype)


@dataclass(frozen=True, slots=True)
class _Map:
    """A learned linear map: what it reads, its weight, and how their axes meet.

    ``summed``: (axis of the weight, axis of the data) of each summed axis; ``kept``: the axes of the
    weight that the result has and the data lacks.
    """

    data: Node
    weight: Node
    name: str
    summed: tuple[tuple[int, int], ...]
    kept: tuple[int, ...]

    @property
    def data_axes(self) -> tuple[int, ...]:
        """Return the axes of the data that are summed."""
        return tuple(other for _, other in self.summed)

    @staticmethod
    def of(found: Contraction, data: Node, weight: Node, name: str) -> _Map:
        """Read the labels of a contraction."""
        _, of_data = found.side(found.left is data)
        _, of_weight = found.side(found.left is weight)
        summed = tuple(
            (axis, of_data.index(label))
            for axis, label in enumerate(of_weight)
            if label in found.summed and label in of_data
        )
        kept = tuple(
            axis for axis, label in enumerate(of_weight)
            if label is not None and label in found.out_labels and label not in of_data
        )  # fmt: skip
        return _Map(data, weight, name, summed, kept)


def _parameter_of(node: Node) -> str | None:
    """Return the one parameter that `node` holds, as it is or turned."""
    while node.op == "call_function":
        read = operands(node)
        if len(read) != 1:
            return None
        node = read[0]
    name = node.meta.get("parameter")
    return str(name) if name else None


def _nodes_in(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _nodes_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _nodes_in(item)
    elif isinstance(value, slice):
        yield from _nodes_in((value.start, value.stop, value.step))


def _valued(given: Any) -> Any:
    return lambda value: given(value) if isinstance(value, Node) else value
