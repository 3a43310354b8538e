"""The parts of a recording that may hold attention: the smallest module calls with two products of data.

Found from the graph alone, without any value: in a recording of a large model there are hardly any.
Parts that are alike (the layers of a model) are found together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.fx import Node

from mha_lint.capture import Recording
from mha_lint.sites.contraction import contraction_of
from mha_lint.sites.dependence import op, operands

_Span: TypeAlias = tuple[int, int]
"""Places in the list of calls: the first, and that behind the last."""


@dataclass(frozen=True, slots=True)
class Part:
    """One call of a module: its nodes in order, and the paths of all that are alike, its own first."""

    path: str
    class_name: str
    nodes: tuple[Node, ...]
    alike: tuple[str, ...]

    def computed(self, recording: Recording) -> int:
        """Return how many numbers the call computes."""
        values = (recording.values.get(node) for node in self.nodes)
        return sum(x.numel() for x in values if isinstance(x, torch.Tensor))


def parts_of(recording: Recording) -> list[Part]:
    """Return the distinct parts of `recording` in order."""
    nodes = [n for n in recording.graph.nodes if n.op == "call_function"]
    paths = [str(n.meta.get("module", "")) for n in nodes]
    learned = learned_nodes(recording)
    products = [i for i, n in enumerate(nodes) if multiplies_data(recording, n, learned)]
    stretches = _Stretches(paths, recording.module)
    spans = dict(stretches.smallest(one, two) for one, two in itertools.pairwise(products))
    kept = _minimal(spans)
    # An attention that asks another one which keys to read is a part of its own: its two products
    # stand around that one, or beside it, in the code of one module.
    left = [i for i in products if not any(start <= i < end for start, end in kept)]
    for one, two in itertools.pairwise(left):
        if paths[one] == paths[two] and _feeds(recording, nodes[one], nodes[two]):
            span, path = stretches.smallest(one, two)
            spans[span] = path
            kept.append(span)
    found: dict[Hashable, Part] = {}
    for start, end in sorted(set(kept), key=lambda s: (s[0], -s[1])):
        held = nodes[start:end]
        path = spans[start, end]
        key = _key(recording, held, path)
        known = found.get(key)
        alike = (*known.alike, path) if known is not None else (path,)
        first = known or Part(path, _class_of(recording, path), tuple(held), ())
        found[key] = Part(first.path, first.class_name, first.nodes, alike)
    return list(found.values())


def enlarged(recording: Recording, part: Part) -> Part:
    """Return the call of the module around `part`."""
    nodes = [n for n in recording.graph.nodes if n.op == "call_function"]
    path = part.path.rpartition(".")[0]
    paths = [str(n.meta.get("module", "")) for n in nodes]
    (start, end), _ = _Stretches(paths, recording.module).around(nodes.index(part.nodes[0]), path)
    name = _class_of(recording, path)
    return Part(
        path, name, tuple(nodes[start:end]), tuple(p.rpartition(".")[0] for p in part.alike)
    )


def learned_nodes(recording: Recording) -> dict[Node, bool]:
    """Return of each node whether it is made from parameters and constants, with a parameter in it."""
    learned: dict[Node, bool] = {}
    data: dict[Node, bool] = {}
    for node in recording.graph.nodes:
        read = operands(node)
        data[node] = node.op == "placeholder" or any(data[n] for n in read)
        own = bool(node.meta.get("parameter"))
        learned[node] = not data[node] and (own or any(learned[n] for n in read))
    return learned


def multiplies_data(recording: Recording, node: Node, learned: dict[Node, bool]) -> bool:
    """Return whether `node` is a product of two things of which none is learned."""
    found = contraction_of(recording, node)
    return found is not None and not learned[found.left] and not learned[found.right]


class _Stretches:
    """The stretches of nodes that belong to one call of a module, by its path."""

    def __init__(self, paths: list[str], module: nn.Module | None) -> None:
        self._paths = paths
        self._module = module
        self._known: dict[str, list[tuple[int, int]]] = {}

    def smallest(self, one: int, two: int) -> tuple[tuple[int, int], str]:
        """Return the shortest stretch of one module that holds both places, and its path."""
        path = self._paths[one]
        for between in dict.fromkeys(self._paths[one : two + 1]):
            while not _below(between, path):
                path = path.rpartition(".")[0]
        while path and self._holds_only(path):
            path = path.rpartition(".")[0]
        return self.around(one, path)

    def _holds_only(self, path: str) -> bool:
        """Return whether the module at `path` is a list of others, which nobody calls."""
        module = self._module.get_submodule(path) if self._module is not None else None
        return module is not None and type(module).forward is nn.Module.forward

    def around(self, one: int, path: str) -> tuple[tuple[int, int], str]:
        """Return the stretch of the module at `path` that holds a place, and the path."""
        for start, end in self._known.setdefault(path, []):
            if start <= one < end:
                return (start, end), path
        start, end = one, one + 1
        while start > 0 and _below(self._paths[start - 1], path):
            start -= 1
        while end < len(self._paths) and _below(self._paths[end], path):
            end += 1
        self._known[path].append((start, end))
        return (start, end), path


def _below(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(f"{above}.")


def _minimal(spans: Iterable[_Span]) -> list[_Span]:
    """Return the spans that hold no other one, in order."""
    kept: list[_Span] = []
    for span in sorted(spans, key=lambda s: (s[0], -s[1])):
        while kept and kept[-1][0] <= span[0] and span[1] <= kept[-1][1]:
            kept.pop()
        kept.append(span)
    return kept


def _feeds(recording: Recording, one: Node, two: Node) -> bool:
    """Return whether `two` reads `one` as a context does its scores: through no other product."""
    front, seen = list(operands(two)), set[Node]()
    while front:
        node = front.pop()
        if node is one:
            return True
        if node not in seen:
            seen.add(node)
            if contraction_of(recording, node) is None:
                front += operands(node)
    return False


def _class_of(recording: Recording, path: str) -> str:
    module: Any = recording.module
    if module is None:
        return ""
    for part in path.split(".") if path else ():
        module = getattr(module, part, None)
    return type(module).__name__


def _key(recording: Recording, nodes: list[Node], path: str) -> Hashable:
    """Return what two parts that compute the same on other data have in common."""
    place = {node: index for index, node in enumerate(nodes)}
    outside: dict[Node, int] = {}  # numbered as they come: q, k and v may read one thing, or two

    def read(node: Node) -> Hashable:
        known = place.get(node)
        if known is not None:
            return known
        held = recording.values.get(node)
        number = outside.setdefault(node, len(outside))
        if not isinstance(held, torch.Tensor):
            return ("other", number)
        return (number, tuple(held.shape), held.dtype, bool(node.meta.get("parameter")))

    told = tuple(
        (
            op(n),
            plain(n.args, read),
            plain(n.kwargs, read),
            str(n.meta.get("module", ""))[len(path) :],
        )
        for n in nodes
    )
    return (_class_of(recording, path), told)


def plain(value: Any, read: Callable[[Node], Hashable]) -> Hashable:
    """Return what arguments of a call hold, equal for equal ones; `read` tells of each node among them."""
    if isinstance(value, Node):
        return read(value)
    if isinstance(value, (tuple, list)):
        return tuple(plain(v, read) for v in value)
    if isinstance(value, Mapping):
        return tuple((k, plain(v, read)) for k, v in value.items())
    if isinstance(value, slice):
        return ("slice", *(plain(v, read) for v in (value.start, value.stop, value.step)))
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return (type(value).__name__, value)
