"""Linear attention with a running state: keys and values are multiplied and then cumulated.

``S_i = sum over j <= i of phi(k_j) v_j`` is no contraction, since every position keeps its own sum; the
queries are contracted with it. Such a site is of kind "linear": it has no scores.

A loop over positions keeps the one state that it needs, ``S = decay * S + k_i v_i``, and reads it with
each query: its last reading, of all positions, stands for the site.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.model.facts import Kind
from mha_lint.sites.axes import axes_of
from mha_lint.sites.contraction import Contraction
from mha_lint.sites.dependence import Dependence, is_tensor, op, operands, shape
from mha_lint.sites.normaliser import Normaliser
from mha_lint.sites.operand import Operands
from mha_lint.sites.site import Site
from mha_lint.sites.source import Sources
from mha_lint.sites.trace import trace

_PASSED = (
    frozenset(["view", "reshape", "transpose", "permute", "movedim", "contiguous", "unsqueeze"])
    | frozenset(["squeeze", "unflatten", "flatten", "expand", "clone", "to", "double", "float"])
    | frozenset(["type_as", "getitem", "__getitem__", "div", "truediv", "pad", "roll"])
)
"""What may stand between the product and the sum, or the sum and the queries."""
FEWEST = 2
"""Products that are added up before a sum is taken for a state."""


def cumulated(
    dependence: Dependence,
    sources: Sources,
    operands_: Operands,
    replay: Replay,
    mixing: Sequence[Contraction],
    kept: Sequence[Site],
) -> list[Site]:
    """Return the sites among `mixing` whose one side is a running sum of products of two projections."""
    inside = {n for s in kept for m in s.all for n in (m.scores, m.context)}
    found: list[Site] = []
    for value in mixing:
        if value.node in inside:
            continue
        for state_left in (True, False):
            state = value.side(state_left)[0]
            if _is_state(dependence, sources, state):
                found.append(_site(operands_, replay, value, state_left))
                break
    return found + _stepped(dependence, sources, operands_, replay, mixing, inside)


def _stepped(
    dependence: Dependence,
    sources: Sources,
    operands_: Operands,
    replay: Replay,
    mixing: Sequence[Contraction],
    inside: set[Node],
) -> list[Site]:
    """Return the last reading of each state that a loop adds one product after another to."""
    read: dict[Node, tuple[Contraction, bool]] = {}
    for value in mixing:
        for state_left in (True, False):
            products = _added(dependence, sources, value.side(state_left)[0])
            if value.node not in inside and len(products) >= FEWEST:
                # All states of one loop begin with the same product.
                read[products[0]] = (value, state_left)
    return [_site(operands_, replay, *last) for last in read.values()]


def _added(dependence: Dependence, sources: Sources, state: Node) -> list[Node]:
    """Return the products that were added up to `state`, the first one first; none if it is no such sum."""
    found: list[Node] = []
    while True:
        node = _kept(dependence, state)
        if _is_outer(dependence, sources, node):
            return [node, *found]
        if op(node) not in ("add", "iadd", "add_"):
            return found
        sides = [n for n in operands(node) if dependence.on_data(n)]
        outer = [n for n in sides if _is_outer(dependence, sources, _kept(dependence, n))]
        if len(sides) == 1:
            state = sides[0]  # the state that a loop begins with is 0
        elif len(sides) == len(outer) + 1 == FEWEST:
            found.insert(0, outer[0])
            state = next(n for n in sides if n is not outer[0])
        elif len(outer) == len(sides) == FEWEST:
            return [outer[0], outer[1], *found]
        else:
            return found


def _kept(dependence: Dependence, state: Node) -> Node:
    """Return what `state` is of the state before it: as it was, or weakened by a factor."""
    while op(state) in _PASSED | {"mul"} and operands(state):
        pair = [n for n in operands(state) if is_tensor(dependence.recording, n)]
        larger = [n for n in pair if _elements(dependence, n) == _elements(dependence, state)]
        if len(larger) != 1:
            break  # a product of two, or one that makes it larger
        state = larger[0]
    return state


def _is_state(dependence: Dependence, sources: Sources, node: Node) -> bool:
    """Return whether `node` is a running sum of products of data with other data."""
    one = _behind(node)
    if op(one) != "cumsum" or not operands(one):
        return False
    return _is_outer(dependence, sources, _behind(operands(one)[0]))


def _behind(node: Node) -> Node:
    while op(node) in _PASSED and operands(node):
        node = operands(node)[0]
    return node


def _is_outer(dependence: Dependence, sources: Sources, node: Node) -> bool:
    """Return whether `node` multiplies two tensors and keeps channels of both."""
    pair = [n for n in operands(node) if is_tensor(dependence.recording, n)]
    if op(node) not in ("mul", "einsum", "matmul", "bmm") or len(pair) != 2:
        return False
    if not all(dependence.on_data(n) for n in pair):
        return False
    if pair[0] is pair[1] or not all(_is_projected(sources, n) for n in pair):
        return False
    sizes = [_elements(dependence, n) for n in (node, *pair)]
    return sizes[0] > max(sizes[1:])


def _is_projected(sources: Sources, node: Node) -> bool:
    return any(s.kind == "projection" for s in sources.of(node))


def _elements(dependence: Dependence, node: Node) -> int:
    count = 1
    for n in shape(dependence.recording, node):
        count *= n
    return count


def _site(operands_: Operands, replay: Replay, value: Contraction, state_left: bool) -> Site:
    state, labels = value.side(state_left)
    asking, theirs = value.side(not state_left)
    rows = axes_of(theirs, value.summed)
    features = axes_of(theirs, frozenset(value.free(not state_left)))
    groups = tuple(a for a in range(len(theirs)) if a not in rows and a not in features)
    queries = operands_.describe(asking, rows, features, groups)
    to_weights = trace(replay, state, state)
    keys = axes_of(labels, value.summed)
    others = tuple(a for a in range(len(labels)) if a not in keys)
    return Site(
        Kind.LINEAR, None, False, value, state_left, Normaliser(state, state, None), None,
        to_weights, to_weights.index, None, None, queries, (), keys, others,
    )  # fmt: skip
