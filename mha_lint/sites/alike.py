"""Layers that compute the same on other data, told by the graph: what one of them shows, all show.

A recording is cut where each layer begins: what comes before the first one, and a stretch of calls
for each layer. Two stretches are alike if they hold the same calls with the same constants and
sizes, made on the same lines, with what they read from outside at the same places.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch.fx import Node

from mha_lint.capture import Recording
from mha_lint.sites.dependence import op
from mha_lint.sites.parts import learned_nodes, multiplies_data, plain

Row: TypeAlias = tuple[str, ...]
"""The paths of the modules at one place of lists that are gone through together."""
Stack: TypeAlias = tuple[Row, ...]
"""The rows of one list of layers, in order."""


def stacks_of(recording: Recording, lists: Sequence[Sequence[str]]) -> list[Stack]:
    """Return the rows of `lists` of modules that the call goes through one after the other, in order.

    `lists`: the paths of the elements of each; none lies within an element of another one.
    """
    touched = _touched(recording, [path for one in lists for path in one])
    found: list[Stack] = []
    for one in lists:
        stack: Stack = tuple((path,) for path in one)
        if not _in_order(stack, touched):
            continue
        for index, other in enumerate(found):
            both = tuple((*a, *b) for a, b in zip(other, stack, strict=False))
            if len(other) == len(stack) and _in_order(both, touched):
                found[index] = both
                break
        else:
            found.append(stack)
    kept: list[Stack] = []
    end = -1
    for stack in sorted(found, key=lambda s: _range(s[0], touched)[0]):
        start, _ = _range(stack[0], touched)
        if start > end:
            kept.append(stack)
            _, end = _range(stack[-1], touched)
    return kept


@dataclass(slots=True)
class Constants:
    """Numbers for the constants of several recordings, the same for equal ones."""

    _known: dict[Hashable, list[torch.Tensor]] = field(default_factory=dict)

    def number(self, value: torch.Tensor) -> Hashable:
        """Return what only a tensor of this type, size and content has."""
        key = (value.dtype, tuple(value.shape))
        known = self._known.setdefault(key, [])
        for index, other in enumerate(known):
            if other is value or _equal(other, value):
                return (*key, index)
        known.append(value)
        return (*key, len(known) - 1)


class Stretches:
    """The stretches of a recording, each with a key that all that are alike have."""

    def __init__(self, recording: Recording, stacks: Sequence[Stack], constants: Constants) -> None:
        """Cut `recording` where the rows of `stacks` begin; these are in order."""
        self._recording = recording
        self._constants = constants
        self._nodes = [n for n in recording.graph.nodes if n.op == "call_function"]
        self._place = {node: index for index, node in enumerate(self._nodes)}
        self._inputs = {node: index for index, node in enumerate(recording.placeholders)}
        rows = [(s, r, row) for s, stack in enumerate(stacks) for r, row in enumerate(stack)]
        touched = _touched(recording, [path for _, _, row in rows for path in row])
        self._rows = rows
        self._starts = [_range(row, touched)[0] for _, _, row in rows]
        self._first = [i for i, (_, r, _) in enumerate(rows) if r == 0]
        self._last = [i - 1 for i in self._first[1:]] + [len(rows) - 1]
        self.head = tuple(self._token(n, -1) for n in self._between(-1))
        self.keys = {row: tuple(self._told(index)) for index, (_, _, row) in enumerate(rows)}

    def alike(self, stack: Stack) -> dict[Row, Hashable]:
        """Return the key of each row; the last one has that of another if more only follows behind it."""
        found: dict[Row, Hashable] = {row: self.keys[row] for row in stack}
        last = self.keys[stack[-1]]
        for row in stack[:-1]:
            calls, returned = self.keys[row]
            if last[0][: len(calls)] == calls and set(returned) <= set(last[1]):
                found[stack[-1]] = self.keys[row]
        return found

    def nodes(self, row: Row) -> list[Node]:
        """Return the calls of the stretch that begins with `row`."""
        return self._between(next(i for i, x in enumerate(self._rows) if x[2] == row))

    def follows(self, row: Row, nodes: Set[Node]) -> bool:
        """Return whether all of `nodes` in a stretch read what other rows made: it is a further layer.

        Heads in a list all read the same instead, and only their results are put together.
        """
        index = next(i for i, x in enumerate(self._rows) if x[2] == row)
        later: set[Node] = set()
        for node in self._between(index):
            read = node.all_input_nodes
            if any(n in later or 0 <= self._stretch(n) < index for n in read):
                later.add(node)
            elif node in nodes:
                return False
        return True

    def reads_many(self) -> bool:
        """Return whether what follows a stack reads more of its rows than the last one: all heads, say."""
        return any(
            other >= 0 and other not in (index, index - 1, *self._first, *self._last)
            for index in self._last
            for node in self._between(index)
            for other in (self._stretch(n) for n in node.all_input_nodes)
        )

    def _between(self, index: int) -> list[Node]:
        start = self._starts[index] if index >= 0 else 0
        end = self._starts[index + 1] if index + 1 < len(self._starts) else len(self._nodes)
        return self._nodes[start:end]

    def _stretch(self, node: Node) -> int:
        """Return in which stretch `node` is called, -1 for what is before the first or is no call."""
        place = self._place.get(node)
        return -1 if place is None else bisect.bisect_right(self._starts, place) - 1

    def _told(self, index: int) -> Iterator[tuple[Hashable, ...]]:
        """Yield what a stretch calls, and what of it is returned, such as keys and values for a cache."""
        end = index == len(self._rows) - 1
        outputs = self._recording.outputs
        own = (n for n in outputs if (s := self._stretch(n)) == index or (s < 0 and end))
        yield tuple(self._token(n, index) for n in self._between(index))
        yield tuple(sorted((self._plain(n, index) for n in own), key=repr))

    def _token(self, node: Node, index: int) -> Hashable:
        value = self._recording.values.get(node)
        size = (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else None
        return (
            op(node),
            self._plain(node.args, index),
            self._plain(node.kwargs, index),
            size,
            self._name(str(node.meta.get("module", "")), index),
            tuple(node.meta.get("stack", ())),
        )

    def _name(self, path: str, index: int) -> Hashable:
        """Return a path, or what it is called in the row that it belongs to."""
        row = self._rows[index][2] if index >= 0 else ()
        for number, own in enumerate(row):
            if path == own or path.startswith(f"{own}."):
                return (number, path[len(own) :])
        return path

    def _plain(self, value: object, index: int) -> Hashable:
        return plain(value, lambda node: self._read(node, index))

    def _read(self, node: Node, index: int) -> Hashable:
        """Return from where a stretch reads `node`."""
        if node in self._place:
            other, place = self._stretch(node), self._place[node]
            if other < 0:
                return ("head", place)
            offset = place - self._starts[other]
            if other == index:
                return ("own", offset)
            if other in self._first and index - other > 1:
                return ("first", self._rows[other][0], offset)
            behind = self._starts[other + 1] - place
            if other in self._last:
                return ("last", self._rows[other][0], behind)
            return ("before", index - other, behind)
        if node in self._inputs:
            return ("input", self._inputs[node])
        value = self._recording.values.get(node)
        name = node.meta.get("parameter")
        if name is not None and isinstance(value, torch.Tensor):
            return ("parameter", self._name(str(name), index), tuple(value.shape), value.dtype)
        if isinstance(value, torch.Tensor):
            own = self._name(str(node.meta.get("buffer", "")), index)
            return ("constant", own, self._constants.number(value))
        return ("other", repr(node.target))


def products_of_data(recording: Recording) -> set[Node]:
    """Return the calls that multiply data by data, without which there is no attention."""
    learned = learned_nodes(recording)
    nodes = recording.graph.nodes
    return {n for n in nodes if n.op == "call_function" and multiplies_data(recording, n, learned)}


def _touched(recording: Recording, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the first and the last call in or with the weights of each of `paths`."""
    known = set(paths)
    found: dict[str, tuple[int, int]] = {}
    nodes = [n for n in recording.graph.nodes if n.op == "call_function"]
    for index, node in enumerate(nodes):
        names = [str(node.meta.get("module", ""))]
        names += [str(n.meta.get("parameter", "")) for n in node.all_input_nodes]
        for name in names:
            for path in _above(name):
                if path in known:
                    found[path] = (found.get(path, (index, index))[0], index)
    return found


def _above(path: str) -> Iterator[str]:
    parts = path.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _range(row: Row, touched: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    return min(touched[p][0] for p in row), max(touched[p][1] for p in row)


def _in_order(stack: Stack, touched: Mapping[str, tuple[int, int]]) -> bool:
    """Return whether the rows of `stack` are called, each after the one before has ended."""
    end = -1
    for row in stack:
        if any(path not in touched for path in row):
            return False
        start, last = _range(row, touched)
        if start <= end:
            return False
        end = last
    return True


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one type and size hold the same, NaN at the same places."""
    try:
        if one.is_floating_point() or one.is_complex():
            return torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)
        return torch.equal(one, other)
    except (RuntimeError, NotImplementedError):  # no values, or a layout that cannot be compared
        return False
