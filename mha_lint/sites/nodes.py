"""Sets of nodes of one recording as the bits of one number, so that joining and meeting them is quick.

What a node depends on is asked for thousands of times, and in a deep model it is nearly all that was
recorded before it: walked anew each time, the cost of a check would grow with the square of the depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from torch.fx import Node


class Numbering:
    """The nodes of one recording and their numbers, in recorded order."""

    __slots__ = ("nodes", "number")

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Number `nodes` as they come."""
        self.nodes = nodes
        self.number: dict[Node, int] = {node: i for i, node in enumerate(nodes)}

    def bits(self, nodes: Iterable[object]) -> int:
        """Return the bits of those of `nodes` that have a number."""
        held = bytearray(len(self.nodes) // 8 + 1)
        for node in nodes:
            i = self.number.get(node)  # type: ignore[call-overload]
            if i is not None:
                held[i >> 3] |= 1 << (i & 7)
        return int.from_bytes(held, "little")


def numbers_in(bits: int) -> Iterator[int]:
    """Yield the places of the bits that are set in `bits`."""
    first = (bits & -bits).bit_length() - 1
    if first < 0:
        return
    text = format(bits >> first, "b")[::-1]
    at = 0
    while at >= 0:
        yield first + at
        at = text.find("1", at + 1)


class Nodes(AbstractSet[Node]):
    """Some nodes of a recording; iterates in recorded order."""

    __slots__ = ("_bits", "_numbering")

    def __init__(self, numbering: Numbering, bits: int) -> None:
        """Hold the nodes whose number is that of a bit set in `bits`."""
        self._numbering, self._bits = numbering, bits

    def __contains__(self, node: object) -> bool:
        """Return whether `node` is held."""
        i = self._numbering.number.get(node)  # type: ignore[call-overload]
        return i is not None and bool(self._bits >> i & 1)

    def __iter__(self) -> Iterator[Node]:
        """Yield the nodes in recorded order."""
        nodes = self._numbering.nodes
        return (nodes[i] for i in numbers_in(self._bits))

    def __reversed__(self) -> Iterator[Node]:
        """Yield the nodes from the last one on."""
        text, nodes = format(self._bits, "b"), self._numbering.nodes
        at = text.find("1")
        while at >= 0:
            yield nodes[len(text) - 1 - at]
            at = text.find("1", at + 1)

    def __len__(self) -> int:
        """Return how many nodes are held."""
        return self._bits.bit_count()

    def __bool__(self) -> bool:
        """Return whether any node is held."""
        return self._bits != 0

    def __and__(self, other: AbstractSet[Any]) -> Nodes:
        """Return the nodes that both hold."""
        return Nodes(self._numbering, self._bits & self._bits_of(other))

    def __rand__(self, other: AbstractSet[Any]) -> AbstractSet[Any]:
        """Return what both hold, as a set of the kind of `other`."""
        both = (node for node in other if node in self)
        return frozenset(both) if isinstance(other, frozenset) else set(both)

    def __or__(self, other: AbstractSet[Any]) -> Nodes:
        """Return the nodes that one of them holds; `other` may hold nodes of this recording only."""
        return Nodes(self._numbering, self._bits | self._bits_of(other))

    def __ror__(self, other: AbstractSet[Any]) -> AbstractSet[Any]:
        """Return what one of them holds, as a set of the kind of `other`."""
        return other.union(self) if isinstance(other, set | frozenset) else {*other, *self}

    def __sub__(self, other: AbstractSet[Any]) -> Nodes:
        """Return the nodes that `other` does not hold."""
        return Nodes(self._numbering, self._bits & ~self._bits_of(other))

    def __rsub__(self, other: AbstractSet[Any]) -> AbstractSet[Any]:
        """Return what `other` holds alone, as a set of its kind."""
        alone = (node for node in other if node not in self)
        return frozenset(alone) if isinstance(other, frozenset) else set(alone)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> set[Any]:
        return set(it)

    def _bits_of(self, other: AbstractSet[Any]) -> int:
        if isinstance(other, Nodes) and other._numbering is self._numbering:
            return other._bits
        return self._numbering.bits(other)

    def __hash__(self) -> int:
        """Return a number that equal sets share."""
        return hash(self._bits)
