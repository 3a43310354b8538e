"""Ways around the mask: positions that are mixed before, between or behind attention.

All sites' contexts are held, so what still passes from a position to an earlier one does so by a
pooling, a norm over time, a centred convolution, a recurrence from behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.facts.bench import Bench
from mha_lint.facts.causal.rows import (
    Moves,
    aligned_axis,
    axis_moves,
    context_axis,
    held_moves,
    moves,
    rows_of,
)
from mha_lint.facts.influence import MOSTLY, Entry, along, entries, some
from mha_lint.model.facts import Kind
from mha_lint.sites.dependence import is_number, operands, stack_of
from mha_lint.sites.site import Site

LARGEST = 2_000_000
"""Elements times positions of all nodes between: beyond that no line is searched for."""


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """``node``: where what comes later joins; ``later`` moves row ``earlier`` of ``reaches``.

    ``through``: the modules and functions that what comes later passes on its way there.
    """

    node: Node
    through: frozenset[str]
    entry: Entry
    later: int
    earlier: int
    change: float
    reaches: str


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """From positions of ``entry`` to rows of ``output`` along ``axis``, by attention or beside it.

    ``own``: what to add to a position to get its row there.
    """

    entry: Entry
    output: Node
    axis: int
    own: int


def joins(bench: Bench, sites: list[Site], count: int) -> Mixed | None:
    """Return the first place where later positions join earlier ones besides attention.

    `sites`: members that have `count` rows each, in recorded order.
    """
    outputs = [n for n in bench.recording.outputs if is_number(bench.recording, n)]
    for source in sources(bench, sites, count):
        below = bench.dependence.descendants([source.node])
        ends = [s for s in sites if _operand_nodes(s) & below]
        order = bench.dependence.order
        targets = [
            n for s in ends for n in sorted(_operand_nodes(s) & below, key=order.__getitem__)
        ]
        through = [n for n in outputs if n in below]
        if not targets and not through:
            continue
        assert source.axis is not None
        length = bench.replay.base(source.node).shape[source.axis]
        positions, changes = held_moves(bench, source, [*targets, *through], some(length))
        by_node = dict(zip([*targets, *through], changes, strict=True))
        for site in ends:
            found = _operand_moves(bench, site, positions, by_node, length)
            known = [m.own for m in found.values() if m.own is not None]
            own = max(set(known), key=known.count) if known else None
            for name, one in found.items():
                leak = Moves(one.positions, one.rows, own, one.apart).early()
                if leak is not None:
                    node = _node_of(site, name)
                    at = _join(bench, source, node, positions, own or 0, sites)
                    return _mixed(bench, source, at or node, leak, name)
        for node in through:
            of_output = _output_moves(bench, sites, count, source, node, positions, by_node[node])
            leak = of_output.early() if of_output is not None else None
            if of_output is not None and leak is not None:
                at = _join(bench, source, node, positions, of_output.own or 0, sites)
                return _mixed(bench, source, at or node, leak, "output")
    return None


def _output_moves(
    bench: Bench,
    sites: list[Site],
    count: int,
    source: Entry,
    node: Node,
    positions: list[int],
    change: Tensor,
) -> Moves | None:
    """Return how the rows of an output move: where all move alike, rows are those of attention."""
    assert source.axis is not None
    length = int(bench.replay.base(source.node).shape[source.axis])
    axis = aligned_axis(positions, change)
    if axis is not None:
        return axis_moves(positions, change, axis, length)
    owns = [own for entry, own in into(bench, sites, count) if entry == source]
    out = _out_of(bench, sites, node) if owns and bool((change > 0).any()) else None
    if out is None:
        return None
    return Moves(tuple(positions), along(change, out[0]), owns[0] + out[1], False)


def _mixed(
    bench: Bench, source: Entry, node: Node, leak: tuple[int, int, float], reaches: str
) -> Mixed:
    path = [*bench.dependence.between(source.node, node), node]
    names = {str(n.meta.get("module", "")) for n in path}
    names |= {f.function.rpartition(".")[2] for n in path for f in stack_of(n)}
    return Mixed(node, frozenset(names), source, *leak, reaches)


def sources(bench: Bench, sites: list[Site], count: int) -> list[Entry]:
    """Return where positions begin: the first input, then the contexts of `sites`, whose name is empty.

    A second input of as many positions is what the first is conditioned on: it may be known ahead.
    """
    entering = [e for e, _ in into(bench, sites, count)]
    found = [e for e in entering if e.argument == entering[0].argument]
    for site in sites:
        axis = context_axis(bench, site)
        if axis is not None:
            found.append(Entry(site.context, "", axis))
    return found


def ways(bench: Bench, sites: list[Site], count: int) -> list[Way]:
    """Return how positions of inputs stand to rows of outputs, by the residual stream or by attention."""
    outputs = [n for n in bench.recording.outputs if is_number(bench.recording, n)]
    entering = into(bench, sites, count)
    found: list[Way] = []
    for node in outputs:
        out = _out_of(bench, sites, node)
        if out is None:
            continue
        axis, shift = out
        found += [Way(entry, node, axis, own + shift) for entry, own in entering]
    return found


_KNOWN: WeakKeyDictionary[Replay, dict[tuple[object, ...], list[tuple[Entry, int]]]] = (
    WeakKeyDictionary()
)


def into(bench: Bench, sites: list[Site], count: int) -> list[tuple[Entry, int]]:
    """Return the inputs that reach queries by no attention, and what makes rows of positions there."""
    known = _KNOWN.setdefault(bench.replay, {})
    key = (count, *(site.context for site in sites))
    if key not in known:
        known[key] = _measured_into(bench, sites, count)
    return known[key]


def _measured_into(bench: Bench, sites: list[Site], count: int) -> list[tuple[Entry, int]]:
    found: list[tuple[Entry, int]] = []
    for entry in entries(bench):
        if entry.axis is None or not 2 < _size(bench, entry) <= count:
            continue
        below = bench.dependence.descendants([entry.node])
        for site in sites:
            if site.q is None or site.q.node not in below:
                continue
            size = _size(bench, entry)
            positions, (change,) = held_moves(bench, entry, [site.q.node], some(size))
            own = moves(positions, change, rows_of(bench, site).q, size).own
            if bool((change > 0).any()) and own is not None:
                found.append((entry, own))
                break
    return found


def _out_of(bench: Bench, sites: list[Site], output: Node) -> tuple[int, int] | None:
    """Return the axis of `output` on which the rows of the last site lie, and by how much shifted."""
    above = bench.dependence.ancestors([output])
    for site in reversed(sites):
        axis = context_axis(bench, site) if site.context in above else None
        if axis is None:
            continue
        source = Entry(site.context, "", axis)
        positions, (change,) = held_moves(bench, source, [output], some(_size(bench, source)))
        found = aligned_axis(positions, change)
        if found is not None:
            shift = axis_moves(positions, change, found, _size(bench, source)).own
            return (found, shift) if shift is not None else None
    return None


def _size(bench: Bench, entry: Entry) -> int:
    assert entry.axis is not None
    return int(bench.replay.base(entry.node).shape[entry.axis])


def _node_of(site: Site, name: str) -> Node:
    operand = {"queries": site.q, "keys": site.k, "values": site.v}[name]
    assert operand is not None
    return operand.node


def _operand_nodes(site: Site) -> set[Node]:
    """Return what must hold no later positions: the queries, and of self-attention keys and values."""
    assert site.q is not None and site.k is not None
    nodes = {site.q.node}
    if site.kind is Kind.SELF:
        nodes |= {site.k.node, site.v.node}
    return nodes


def _operand_moves(
    bench: Bench, site: Site, positions: list[int], change: dict[Node, Tensor], length: int
) -> dict[str, Moves]:
    rows = rows_of(bench, site)
    found: dict[str, Moves] = {}
    for name, elements in (("queries", rows.q), ("keys", rows.k), ("values", rows.v)):
        node = _node_of(site, name)
        if node in change and elements is not None and bool((change[node] > 0).any()):
            found[name] = moves(positions, change[node], elements, length)
    return found


def _join(
    bench: Bench,
    source: Entry,
    end: Node,
    positions: list[int],
    own: int,
    sites: Iterable[Site],
) -> Node | None:
    """Return the first node between `source` and `end` at which later positions join aligned ones."""
    inside: set[Node] = set()
    for site in sites:
        for operand in (site.q, site.k, site.v):
            if operand is not None:
                inside |= set(bench.dependence.between(operand.node, site.context))
    between = [n for n in bench.dependence.between(source.node, end) if n not in inside]
    path = [n for n in between if is_number(bench.recording, n)]
    total = sum(bench.replay.base(n).numel() for n in path)
    if total * len(positions) > LARGEST:
        return None
    _, changes = held_moves(bench, source, path, positions)
    measured = dict(zip(path, changes, strict=True))
    counts = {
        _size(bench, source),
        *(bench.replay.base(s.scores).shape[a] for s in sites for a in s.row_axes),
    }
    state: dict[Node, bool | None] = {source.node: False}
    for node in between:
        read = [state.get(n) for n in operands(node)]
        if node not in measured:  # a tuple: what it is made of stands for it
            state[node] = False if False in read else None
            continue
        if not bool((measured[node] > 0).any()):
            state[node] = False  # attention, which is held: nothing else is mixed in yet
            continue
        state[node] = _leaks(positions, measured[node], own, counts)
        if (state[node] or _all_alike(measured[node], counts)) and False in read:
            return node
    return None


def _leaks(positions: list[int], change: Tensor, own: int, counts: set[int]) -> bool | None:
    """Return whether rows of a tensor move with later positions, None where it has no such rows.

    `counts`: how many rows an axis of positions may have.
    """
    if not bool((change > 0).any()):
        return None
    place = torch.tensor(positions)[:, None] + own
    verdicts: list[tuple[int, bool]] = []
    for axis in range(change.dim() - 1):
        count = change.shape[axis + 1]
        if count not in counts or count <= max(positions) + own:
            continue
        rows = along(change, axis)
        hit = rows > 0
        varies = bool((hit[:, 1:] != hit[:, :-1]).any())
        if not varies and not _own_most(positions, rows, own):
            continue
        leak = hit & (torch.arange(count) < place)
        verdicts.append((int(leak.sum()), bool(leak.any())))
    if verdicts:
        return min(verdicts)[1]
    return False if any(_apart(change, axis) for axis in range(change.dim() - 1)) else None


def _all_alike(change: Tensor, counts: set[int]) -> bool:
    """Return whether what moves one row of a tensor that has rows moves all of them."""
    hit = change > 0
    axes = [a for a in range(1, hit.dim()) if hit.shape[a] in counts]
    if any(_apart(change, a - 1) for a in axes):
        return False  # positions are apart there: the other axis holds as many channels
    rows = [hit.movedim(a, 1) for a in axes if a < hit.dim() - 1]
    return bool(hit.any()) and any(bool((r == r[:, :1]).all()) for r in rows)


def _apart(change: Tensor, axis: int) -> bool:
    """Return whether each position moves another row most, where rows are padded or folded."""
    if change.shape[axis + 1] <= change.shape[0]:
        return False
    most, top = along(change, axis).max(1)
    return bool((most > 0).all()) and len(set(top.tolist())) == len(top)


def _own_most(positions: list[int], rows: Tensor, own: int) -> bool:
    """Return whether most positions move their own row the most."""
    top = rows.argmax(1)
    right = [int(t) == p + own for p, t in zip(positions, top, strict=True)]
    return sum(right) > MOSTLY * len(right)
