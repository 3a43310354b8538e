"""Bring a recording into the form in which people mean it, before it is searched.

A layer of one's own is often written ``mm(x.view(-1, C), W).view(B, T, D)``, and its lines tell
nobody where the layer is used. Here the map is applied to ``x`` as it stands, and the operations of
a module that is no more than one linear map on the last axis are placed where it is called.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import nn
from torch.fx import Node

from mha_lint.capture import Recording
from mha_lint.model.source import Frame
from mha_lint.sites.dependence import Dependence, is_tensor, op, operands, shape
from mha_lint.sites.source import Sources

_FLATTENING = frozenset(["view", "reshape", "flatten", "contiguous", "clone"])
_ROWS = frozenset(["matmul", "addmm", "linear"])
_NONE: tuple[Frame, ...] = ()


def straighten(recording: Recording) -> None:
    """Rewrite flattened linear maps, and lift the lines of layers that are one linear map."""
    sources = Sources(Dependence(recording))
    maps = _maps(sources)
    rewritten = [n for n in maps if op(n) in _ROWS and _unflatten(sources, n)]
    if rewritten:
        recording.programs.clear()
        sources = Sources(Dependence(recording))
        maps = _maps(sources)
    _lift(sources, maps)


def _maps(sources: Sources) -> list[Node]:
    return [
        n
        for n in sources.recording.graph.nodes
        if sources.learned_map(n) is not None or (op(n) in _ROWS and sources.map_of_parameters(n))
    ]


def _unflatten(sources: Sources, node: Node) -> bool:
    """Apply the map at `node` to the tensor behind the flattening of its data."""
    recording = sources.recording
    at = {"matmul": 0, "linear": 0, "addmm": 1}[op(node)]
    found = sources.learned_map(node) or sources.map_of_parameters(node)
    if found is None or len(node.args) <= at or node.args[at] is not found[0]:
        return False
    if not is_tensor(recording, node) or not is_tensor(recording, found[0]):
        return False
    if op(node) == "addmm":
        plain = len(node.args) == 3 and not node.kwargs and isinstance(node.args[0], Node)
        if not plain:
            return False
    whole = _before_flattening(recording, found[0])
    if whole is None:
        return False
    lead = shape(recording, whole)[:-1]
    chain = _chain(sources, node, lead)
    if chain is None:
        return False
    width = shape(recording, node)[-1]
    for one in chain:
        value = recording.values[one].reshape(*lead, width)
        recording.values[one] = value
        one.meta["shape"] = tuple(value.shape)
    arguments = list(node.args)
    arguments[at] = whole
    if op(node) == "addmm":
        bias = node.all_input_nodes[0]
        del arguments[0]
        with recording.graph.inserting_before(node):
            product = recording.graph.call_function(torch.matmul, tuple(arguments))
        product.meta.update(node.meta, op="matmul")
        recording.values[product] = recording.values[node] - recording.values[bias]
        node.target, arguments = torch.add, [product, bias]
        node.meta["op"] = "add"
    node.args = tuple(arguments)
    _erase(recording, found[0])
    return True


def _erase(recording: Recording, node: Node) -> None:
    """Take out a flattening that nothing reads any more."""
    while not node.users and op(node) in _FLATTENING:
        before = node.all_input_nodes[0]
        recording.graph.erase_node(node)
        del recording.values[node]
        node = before


def _before_flattening(recording: Recording, data: Node) -> Node | None:
    """Return the tensor of three axes or more whose leading ones were joined into `data`."""
    if len(shape(recording, data)) != 2:
        return None
    width = shape(recording, data)[-1]
    node = data
    while op(node) in _FLATTENING and node.all_input_nodes:
        before = node.all_input_nodes[0]
        if not is_tensor(recording, before) or shape(recording, before)[-1:] != (width,):
            return None
        node = before
        if len(shape(recording, node)) > 2:
            return node
    return None


def _chain(sources: Sources, node: Node, lead: tuple[int, ...]) -> list[Node] | None:
    """Return `node` and the additions of a bias that follow, up to where `lead` stands apart again."""
    recording, dependence = sources.recording, sources.dependence
    chain = [node]
    while True:
        last = chain[-1]
        users = dependence.users(last)
        width = shape(recording, last)[-1]
        if users and all(
            op(u) in _FLATTENING
            and is_tensor(recording, u)
            and shape(recording, u) == (*lead, width)
            for u in users
        ):
            return chain
        if len(users) != 1 or op(users[0]) != "add" or users[0].kwargs:
            return None
        rest = [n for n in operands(users[0]) if n is not last]
        if not all(dependence.learned_only(n) and len(shape(recording, n)) == 1 for n in rest):
            return None
        chain.append(users[0])


def _lift(sources: Sources, maps: list[Node]) -> None:
    """Place the operations of small layers at their calls; ``own_stack`` keeps the inner lines."""
    root = sources.recording.module
    if not isinstance(root, nn.Module):
        return
    modules = sources.recording.modules
    calls = _calls(sources.recording)
    for node in maps:
        path = str(node.meta.get("module", ""))
        module = modules.get(path)
        if not path or module is None or any(module.children()):
            continue
        inside = _inside(sources, node, calls[_call_of(node)])
        if inside is None:
            continue
        names = {f"{c.__qualname__}.forward" for c in type(module).__mro__}
        for one in inside:
            stack: tuple[Frame, ...] = one.meta.get("stack", _NONE)
            depth = next((i for i, f in enumerate(stack) if f.function in names), 0)
            if depth:
                one.meta["own_stack"], one.meta["stack"] = stack, stack[:depth]


def _call_of(node: Node) -> Hashable:
    return (node.meta.get("module"), node.meta.get("call"))


def _calls(recording: Recording) -> dict[Hashable, list[Node]]:
    """Return what runs in each call of a module."""
    found: dict[Hashable, list[Node]] = {}
    for node in recording.graph.nodes:
        if node.op == "call_function":
            found.setdefault(_call_of(node), []).append(node)
    return found


def _inside(sources: Sources, node: Node, inside: list[Node]) -> list[Node] | None:
    """Return `inside`, what runs in the call of `node`, if that is one linear map on the last axis."""
    recording, dependence = sources.recording, sources.dependence
    on_data = [n for n in inside if dependence.on_data(n) and is_tensor(recording, n)]
    held = set(inside)
    entries = {m for n in on_data for m in operands(n) if dependence.on_data(m) and m not in held}
    exits = [n for n in on_data if any(u not in held for u in dependence.users(n))]
    exits = exits or on_data[-1:]
    if len(entries) != 1 or len(exits) != 1:
        return None
    (entry,), (end,) = entries, exits
    if not is_tensor(recording, entry):
        return None
    if shape(recording, entry)[:-1] != shape(recording, end)[:-1]:
        return None
    others = [n for n in on_data if n is not node and not _keeps(sources, n)]
    return inside if not others else None


def _keeps(sources: Sources, node: Node) -> bool:
    """Return whether `node` only rearranges, adds a parameter or multiplies by one."""
    if op(node) in ("add", "mul", "sub", "div"):
        data = [n for n in operands(node) if sources.dependence.on_data(n)]
        return len(data) == 1
    return op(node) in _FLATTENING | {"transpose", "permute", "squeeze", "unsqueeze", "to"}
