"""Every spelling of a product summed over an axis, in one form.

``matmul``, ``bmm``, ``baddbmm``, ``einsum``, ``linear`` with activations as weight, ``tensordot``,
``inner``, ``mul`` followed by ``sum``: each is two operands with a label on every axis. Axes that
share a label are multiplied; labels that the result lacks are summed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from mha_lint.capture import Recording
from mha_lint.sites.dependence import is_tensor, op, operands, shape

Labels = tuple[int | None, ...]
"""One label for each axis; None for an axis of size 1 that is broadcast."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """``out = sum over the missing labels of left * right``."""

    node: Node
    left: Node
    right: Node
    left_labels: Labels
    right_labels: Labels
    out_labels: Labels

    @property
    def summed(self) -> frozenset[int]:
        """Return the labels that are summed away."""
        both = {x for x in self.left_labels if x is not None} & {
            x for x in self.right_labels if x is not None
        }
        return frozenset(both - set(self.out_labels))

    def side(self, left: bool) -> tuple[Node, Labels]:
        """Return the operand and the labels of one side."""
        return (self.left, self.left_labels) if left else (self.right, self.right_labels)

    def free(self, left: bool) -> tuple[int, ...]:
        """Return the labels of one side that the result keeps and the other side lacks."""
        mine, other = (
            (self.left_labels, self.right_labels) if left else (self.right_labels, self.left_labels)
        )
        return tuple(x for x in mine if x is not None and x in self.out_labels and x not in other)

    @property
    def shared(self) -> tuple[int, ...]:
        """Return the labels of both sides that the result keeps: batch and heads."""
        return tuple(
            x
            for x in self.left_labels
            if x is not None and x in self.right_labels and x in self.out_labels
        )


def contraction_of(recording: Recording, node: Node) -> Contraction | None:
    """Return `node` as a contraction of two real tensors, or None when it is none."""
    if node.op != "call_function" or not is_tensor(recording, node):
        return None
    if recording.values[node].is_complex():
        return None  # a product of spectra: what is softmaxed there are no scores of positions
    read = _READERS.get(op(node))
    found = read(recording, node) if read else None
    return found if found is not None and found.summed else None


def _tensors(recording: Recording, *candidates: Any) -> list[Node] | None:
    nodes = [c for c in candidates if isinstance(c, Node) and is_tensor(recording, c)]
    return nodes if len(nodes) == len(candidates) == 2 else None


def _product(
    recording: Recording, node: Node, a: Any, b: Any, *, transposed: bool = False
) -> Contraction | None:
    """Label ``a @ b`` (``a @ b.T`` when `transposed`) as torch.matmul does."""
    pair = _tensors(recording, a, b)
    if pair is None:
        return None
    left, right = pair
    ls, rs = shape(recording, left), shape(recording, right)
    fresh = itertools.count()
    rows, inner, columns = next(fresh), next(fresh), next(fresh)
    tail_left = [inner] if len(ls) == 1 else [rows, inner]
    tail_right = [inner] if len(rs) == 1 else ([columns, inner] if transposed else [inner, columns])
    batch_left, batch_right, batch_out = _broadcast(
        ls[: -len(tail_left)], rs[: -len(tail_right)], fresh
    )
    out = [*batch_out]
    if len(ls) > 1:
        out.append(rows)
    if len(rs) > 1:
        out.append(columns)
    return Contraction(
        node, left, right, (*batch_left, *tail_left), (*batch_right, *tail_right), tuple(out)
    )


def _broadcast(
    left: tuple[int, ...], right: tuple[int, ...], fresh: itertools.count[int]
) -> tuple[list[int | None], list[int | None], list[int | None]]:
    """Label axes that are aligned from the right, as broadcasting does."""
    rank = max(len(left), len(right))
    a = [1] * (rank - len(left)) + list(left)
    b = [1] * (rank - len(right)) + list(right)
    la: list[int | None] = []
    lb: list[int | None] = []
    out: list[int | None] = []
    for m, n in zip(a, b, strict=True):
        label = next(fresh)
        la.append(label if m > 1 or n == 1 else None)
        lb.append(label if n > 1 or m == 1 else None)
        out.append(label)
    return la[rank - len(left) :], lb[rank - len(right) :], out


def _matmul(recording: Recording, node: Node) -> Contraction | None:
    return _product(recording, node, node.args[0], node.args[1]) if len(node.args) >= 2 else None


def _added_product(recording: Recording, node: Node) -> Contraction | None:
    return _product(recording, node, node.args[1], node.args[2]) if len(node.args) >= 3 else None


def _linear(recording: Recording, node: Node) -> Contraction | None:
    data = _arg(node, 0, "input")
    return _product(recording, node, data, _arg(node, 1, "weight"), transposed=True)


def _arg(node: Node, index: int, name: str) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name)


def _inner(recording: Recording, node: Node) -> Contraction | None:
    pair = _tensors(recording, *node.args[:2])
    if pair is None:
        return None
    a, b = len(shape(recording, pair[0])), len(shape(recording, pair[1]))
    la = (*range(a - 1), 99)
    lb = (*range(50, 50 + b - 1), 99)
    return Contraction(node, pair[0], pair[1], la, lb, (*la[:-1], *lb[:-1]))


def _tensordot(recording: Recording, node: Node) -> Contraction | None:
    pair = _tensors(recording, *node.args[:2])
    if pair is None:
        return None
    a, b = len(shape(recording, pair[0])), len(shape(recording, pair[1]))
    dims = _arg(node, 2, "dims")
    dims = 2 if dims is None else dims
    if isinstance(dims, int):
        axes_a, axes_b = list(range(a - dims, a)), list(range(dims))
    elif isinstance(dims, (list, tuple)) and len(dims) == 2:
        as_list = [[d] if isinstance(d, int) else list(d) for d in dims]
        axes_a, axes_b = [d % a for d in as_list[0]], [d % b for d in as_list[1]]
    else:
        return None
    la = list(range(a))
    lb = list(range(50, 50 + b))
    for x, y in zip(axes_a, axes_b, strict=True):
        lb[y] = la[x]
    out = [x for i, x in enumerate(la) if i not in axes_a] + [
        x for i, x in enumerate(lb) if i not in axes_b
    ]
    return Contraction(node, pair[0], pair[1], tuple(la), tuple(lb), tuple(out))


def _einsum(recording: Recording, node: Node) -> Contraction | None:
    equation, *rest = node.args
    if len(rest) == 1 and isinstance(rest[0], (list, tuple)):
        rest = list(rest[0])
    pair = _tensors(recording, *rest)
    if not isinstance(equation, str) or pair is None or len(pair) != 2:
        return None
    left, right = pair
    terms = equation.replace(" ", "")
    inputs, _, output = terms.partition("->")
    a, b = inputs.split(",")
    if "->" not in terms:
        counts = {c: (a + b).count(c) for c in a + b if c.isalpha()}
        output = ("..." if "..." in inputs else "") + "".join(
            sorted(c for c, n in counts.items() if n == 1)
        )
    ls, rs = shape(recording, left), shape(recording, right)
    extra_a = len(ls) - len(a.replace("...", "")) if "..." in a else 0
    extra_b = len(rs) - len(b.replace("...", "")) if "..." in b else 0
    extra = max(extra_a, extra_b)

    def expand(term: str, width: int) -> list[int]:
        """Spell the ellipsis out as the last `width` of `extra` labels from 1000 on."""
        head, dots, tail = term.partition("...")
        middle = list(range(1000 + extra - width, 1000 + extra)) if dots else []
        return [ord(c) for c in head] + middle + [ord(c) for c in tail]

    la, lb, lo = expand(a, extra_a), expand(b, extra_b), expand(output, extra)
    if len(set(la)) != len(la) or len(set(lb)) != len(lb):
        return None  # a diagonal: no plain product of two operands
    sizes: dict[int, int] = {}
    for labels, sized in ((la, ls), (lb, rs)):
        for label, size in zip(labels, sized, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))

    def mark(labels: list[int], sized: tuple[int, ...]) -> Labels:
        return tuple(
            None if n == 1 and sizes[x] > 1 else x for x, n in zip(labels, sized, strict=True)
        )

    return Contraction(node, left, right, mark(la, ls), mark(lb, rs), tuple(lo))


def _summed_product(recording: Recording, node: Node) -> Contraction | None:
    """Read ``(a * b).sum(dims)``."""
    product = node.args[0] if node.args else None
    if not isinstance(product, Node) or op(product) != "mul" or len(operands(product)) < 2:
        return None
    pair = _tensors(recording, *product.args[:2])
    if pair is None:
        return None
    left, right = pair
    fresh = itertools.count()
    la, lb, full = _broadcast(shape(recording, left), shape(recording, right), fresh)
    dims = _arg(node, 1, "dim")
    rank = len(full)
    axes = {d % rank for d in ([dims] if isinstance(dims, int) else dims or range(rank))}
    keep = bool(_arg(node, 2, "keepdim"))
    out: list[int | None] = []
    for axis, label in enumerate(full):
        if axis not in axes:
            out.append(label)
        elif keep:
            out.append(None)
    return Contraction(node, left, right, tuple(la), tuple(lb), tuple(out))


_READERS = {
    "matmul": _matmul,
    "bmm": _matmul,
    "mm": _matmul,
    "mv": _matmul,
    "dot": _matmul,
    "baddbmm": _added_product,
    "addmm": _added_product,
    "addmv": _added_product,
    "linear": _linear,
    "inner": _inner,
    "tensordot": _tensordot,
    "einsum": _einsum,
    "sum": _summed_product,
}
