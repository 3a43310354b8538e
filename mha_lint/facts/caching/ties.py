"""Picks among equal numbers: which of them is taken is not defined, and need not be the same twice."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.fx import Node

from mha_lint.sites.dependence import Dependence, op, operands

FIRST = frozenset(("max", "argmax"))
LAST = frozenset(("min", "argmin"))
ORDERED = frozenset(("sort", "argsort"))
HIDDEN = 1e30
"""What is hidden from a pick is filled with more than this: which of those come last is no matter."""


def picks_among_equals(dependence: Dependence) -> bool:
    """Return whether the places that a pick returns matter, and hang on which of two equals it takes.

    Scores that a ReLU cuts off are all 0: the best four of six such are any four.
    """
    return any(_is_tied(dependence, node) for node in dependence.recording.graph.nodes)


def _is_tied(dependence: Dependence, node: Node) -> bool:
    name = op(node)
    if name not in FIRST | LAST | ORDERED | {"topk"} or node not in dependence.live:
        return False
    read = operands(node)
    value = dependence.recording.values.get(read[0]) if read else None
    if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
        return False
    if not dependence.on_data(read[0]) or not _places_matter(dependence, node):
        return False
    if name == "topk":
        count = _argument(node, 1, "k", 1)
        dim, largest = _argument(node, 2, "dim", -1), _argument(node, 3, "largest", True)
    else:
        count = None if name in ORDERED else 1
        dim, largest = _argument(node, 1, "dim", -1 if name in ORDERED else None), name not in LAST
    if dim is None or value.dim() == 0:
        value, dim = value.flatten(), 0
    if not isinstance(dim, int):
        return False  # the elementwise maximum of two tensors
    ranked = value.sort(dim, descending=bool(largest)).values.movedim(dim, -1)
    equal = (ranked[..., :-1] == ranked[..., 1:]) & (ranked[..., 1:].abs() < HIDDEN)
    if count is not None:
        equal = equal[..., count - 1 : count]
    return bool(equal.any())


def _places_matter(dependence: Dependence, node: Node) -> bool:
    """Return whether the places reach an output, and not the picked values alone."""
    if isinstance(dependence.recording.values.get(node), Tensor):
        return op(node).startswith("arg")
    users = [u for u in dependence.users(node) if u in dependence.live]
    return any(op(u) == "getitem" and u.args[1:] == (1,) for u in users)


def _argument(node: Node, place: int, name: str, default: Any) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)
