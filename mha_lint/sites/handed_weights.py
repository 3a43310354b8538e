"""Weights that a function is handed as arguments: they are its parameters, and no data.

``attention(x, w_q, w_k, w_v, w_o)``: an argument that all samples share, and that does no more than
turn the channels of data into others, is a weight. Queries, keys and values that all samples share
are told from it by the softmax beside them.
"""

from __future__ import annotations

from torch import nn
from torch.fx import Node

from mha_lint.capture import Recording
from mha_lint.sites.contraction import Contraction
from mha_lint.sites.dependence import Dependence, is_tensor, op, operands, shape
from mha_lint.sites.normaliser import SOFTMAX
from mha_lint.sites.source import Sources

_TURNING = frozenset((
    "T", "mT", "t", "transpose", "permute", "view", "reshape", "unflatten", "flatten", "contiguous",
    "to", "chunk", "split", "unbind", "getitem", "select", "unsqueeze",
))  # fmt: skip
_ADDING = frozenset(["add", "addmm", "linear"])
_SPREADING = SOFTMAX | {"exp", "exp2"}
_BATCHED = 3
"""Axes from which on two tensors without a common axis are no samples of one batch."""


def take_weights(recording: Recording) -> None:
    """Turn the arguments of a recorded function that are weights into parameters."""
    if isinstance(recording.module, nn.Module):
        return
    sources = Sources(Dependence(recording))
    weights = [p for p in recording.placeholders if _is_weight(sources, p)]
    if not weights:
        return
    weights += [p for p in recording.placeholders if _is_bias(sources, p)]
    named = dict(zip(recording.placeholders, recording.input_names, strict=True))
    values = dict(zip(recording.placeholders, recording.inputs, strict=True))
    kept = tuple(p for p in recording.placeholders if p not in weights)
    for old in weights:
        name = named[old]
        with recording.graph.inserting_after(recording.placeholders[-1]):
            new = recording.graph.create_node("get_attr", f"weight_{old.name}", (), {})
        new.meta.update(old.meta, op="get_attr", parameter=name, trainable=True)
        recording.values[new] = values[old]
        recording.parameters[name] = new
        old.replace_all_uses_with(new)
    for old in weights:
        del recording.values[old]
        recording.graph.erase_node(old)
    recording.placeholders = kept
    recording.inputs = tuple(values[p] for p in kept)
    recording.input_names = tuple(named[p] for p in kept)
    recording.programs.clear()


def _is_weight(sources: Sources, argument: Node) -> bool:
    recording = sources.recording
    if not recording.values[argument].is_floating_point() or len(shape(recording, argument)) < 2:
        return False
    uses = _uses(sources, argument)
    return bool(uses) and all(_turns_channels(sources, one, side) for one, side in uses)


def _uses(sources: Sources, argument: Node) -> list[tuple[Contraction, Node]]:
    """Return the products that read `argument` with the side it is on; none if anything else does."""
    found: list[tuple[Contraction, Node]] = []
    front, held = [argument], {argument}
    while front:
        node = front.pop()
        for user in sources.dependence.users(node):
            product = sources.contraction(user)
            if product is not None:
                if product.left in held and product.right in held:
                    return []
                found.append((product, product.left if product.left in held else product.right))
                if found[-1][1] not in held:
                    return []  # as a bias of the product
            elif op(user) in _TURNING:
                if user not in held:
                    held.add(user)
                    front.append(user)
            else:
                return []
    return found


def _turns_channels(sources: Sources, product: Contraction, side: Node) -> bool:
    """Return whether the product applies `side` to every position of the data on the other side."""
    left = product.left is side
    data, labels = product.side(not left)
    own, other = (sum(x is not None for x in one) for one in (product.side(left)[1], labels))
    if product.shared or not sources.dependence.on_data(data) or own > other:
        return False
    if own == other and (own < _BATCHED or not _stands_before(sources, data, side)):
        return False
    return not (_spreads_before(sources, data) or _spreads_after(sources, product.node))


def _stands_before(sources: Sources, data: Node, side: Node) -> bool:
    """Return whether `data` comes first in the call: where both look alike, weights come last."""
    order, dependence = sources.recording.placeholders, sources.dependence
    reached = [
        min(i for i, p in enumerate(order) if p is one or p in dependence.ancestors([one]))
        for one in (data, side)
    ]
    return reached[0] < reached[1]


def _spreads_before(sources: Sources, node: Node) -> bool:
    """Return whether `node` holds what a softmax made, with no product between."""
    front, seen = [node], set[Node]()
    while front:
        one = front.pop()
        if one in seen or not is_tensor(sources.recording, one):
            continue
        seen.add(one)
        if op(one) in _SPREADING:
            return True
        if sources.contraction(one) is None:
            front += operands(one)
    return False


def _spreads_after(sources: Sources, node: Node) -> bool:
    """Return whether a softmax reads `node`, with no product between."""
    front, seen = [node], set[Node]()
    while front:
        for user in sources.dependence.users(front.pop()):
            if op(user) in _SPREADING:
                return True
            if user not in seen and sources.contraction(user) is None:
                seen.add(user)
                front.append(user)
    return False


def _is_bias(sources: Sources, argument: Node) -> bool:
    """Return whether `argument` is a vector that is only ever added."""
    recording, users = sources.recording, sources.dependence.users(argument)
    if not recording.values[argument].is_floating_point() or len(shape(recording, argument)) != 1:
        return False
    return bool(users) and all(op(user) in _ADDING for user in users)
