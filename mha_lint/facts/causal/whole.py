"""What reaches what from the inputs to the outputs, for subjects whose sites are no squares.

Attention by chunks, or in linear time, has no mask over all pairs of positions. Rows and positions
are matched by what is measured: each position reaches its own row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.causal.intent import AHEAD, LATENT, ROUNDED, WHOLE, meant_causal, texts
from mha_lint.facts.causal.lines import triangle_line
from mha_lint.facts.influence import MOST, Entry, changed, dominant_shift, entries
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.places import span_of
from mha_lint.model.causal_facts import CausalFault, Leak
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Kind
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, op, operands
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

SHORTEST = 5
"""With fewer positions neither a gap nor a majority of rows means anything."""
CIRCULAR = ("roll", "flip")
PICKING = ("getitem", "__getitem__", "index", "index_select")
PARTS = re.compile(r"chunk(?!\()|prefix|block[-_ ]?wise|segment|window|bucket", re.IGNORECASE)
"""Words of designs in which what is causal may be parts of a sequence."""


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """``change`` (T, T): by how much row r of ``output`` changes when position p is moved, at [p, r].

    Each position reaches its own row.
    """

    entry: Entry
    output: Node
    change: Tensor

    @property
    def future(self) -> Tensor:
        """Return which later positions reach which rows."""
        size = len(self.change)
        return (self.change > 0) & torch.ones(size, size, dtype=torch.bool).tril(-1)

    def leak(self, among: Tensor) -> Leak | None:
        """Return the largest change of a row by a later position, of those in `among`."""
        early = torch.where(among, self.change, 0.0)
        if not bool((early > 0).any()):
            return None
        p, row = divmod(int(early.argmax()), early.shape[1])
        return Leak(self.entry.argument, p, row, float(early[p, row]), "output", 0)


def reaches(bench: Bench) -> list[Reach]:
    """Return how each input reaches each output that has as many rows, if that can be told."""
    outputs = [n for n in bench.recording.outputs if is_number(bench.recording, n)]
    found: list[Reach] = []
    for entry in entries(bench):
        axis = entry.axis if entry.axis is not None else _only_axis(bench, entry)
        if axis is None or not outputs:
            continue
        at = Entry(entry.node, entry.argument, axis)
        count = int(bench.replay.base(entry.node).shape[axis])
        if not SHORTEST <= count <= MOST:
            continue
        _, changes = changed(bench, at, outputs, range(count))
        for node, change in zip(outputs, changes, strict=True):
            table = _table(change, count, axis)
            if table is not None:
                found.append(Reach(at, node, table))
    return found


def _only_axis(bench: Bench, entry: Entry) -> int | None:
    """Return the middle axis of a (B, T, C) entry: without a site nothing else tells of positions."""
    return 1 if bench.replay.base(entry.node).dim() == 3 else None


def _table(change: Tensor, count: int, own: int | None = None) -> Tensor | None:
    """Return (T, T) of the one axis along which each position reaches its own row.

    On the axis `own`, that of the input, rows are taken to be those of positions.
    """
    found: list[Tensor] = []
    for axis in range(change.dim() - 1):
        if change.shape[axis + 1] != count:
            continue
        rows = change.movedim(axis + 1, 1)
        rows = rows.reshape(*rows.shape[:2], -1).amax(-1)
        told = axis == own or bool((rows == 0).any()) or dominant_shift(range(count), rows) == 0
        if bool((rows.diagonal() > 0).all()) and told:
            found.append(rows)
    return found[0] if len(found) == 1 else None


def wrapped(reach: Reach) -> Leak | None:
    """Return what reaches round from the end to the start, where most rows see no later position.

    A look-ahead is without gaps: who sees a later position sees those between. Here a row is reached
    by one behind others that do not reach it.
    """
    future, size = reach.future, len(reach.change)
    leaking = future.any(0)
    if not bool(leaking.any()) or int(leaking.sum()) * 2 > size:
        return None
    row = torch.arange(size)
    nearest = torch.where(future, row[:, None], size).amin(0)
    round_ = leaking & (nearest > row + 1)
    if not bool((round_ == leaking).all()):
        return None
    return reach.leak(future)


def faults_without_squares(subject: Subject, bench: Bench, contract: Contract) -> list[CausalFault]:
    """Return what lets the future through where no site has a square of scores (or none is found)."""
    sites = [m for s in bench.sites for m in s.all if m.kind in (Kind.SELF, Kind.LINEAR)]
    if bench.sites and not sites:
        return []
    meant = meant_causal(subject, bench, sites, contract)
    if meant is None and not _some_square_hidden(bench, sites):
        return []
    found = reaches(bench)
    for reach in found:
        leak = wrapped(reach)
        if leak is not None:
            at = next((a for s in sites if (a := circular_line(bench, s)) is not None), None)
            at = at or (triangle_line(bench, sites[0]) if sites else None)
            return [CausalFault("wrapped", 0, at or subject.span, leak)]
    text = texts(subject, bench, sites)
    designed = any(w.search(text) for w in (AHEAD, LATENT, WHOLE, ROUNDED, PARTS))
    if meant is None or (designed and not meant.stated):
        return []
    for reach in found:
        leak = reach.leak(reach.future)
        if leak is not None:
            at = span_of(_joined_at(bench, reach)) or subject.span
            return [CausalFault("other", 0, at, leak, meant.source, meant.stated)]
    return []


def _joined_at(bench: Bench, reach: Reach) -> Node | None:
    """Return the first node between input and output from which on later positions reach rows."""
    path = [
        n
        for n in bench.dependence.between(reach.entry.node, reach.output)
        if is_number(bench.recording, n)
    ]
    count = len(reach.change)
    _, changes = changed(bench, reach.entry, path, range(count))
    moved = dict(zip(path, changes, strict=True))
    for node, change in moved.items():
        rows = _table(change, count)
        if rows is not None and bool((rows.tril(-1) > 0).any()):
            return _summed(node, moved, count)
        if rows is None and _is_alike(change, count):
            return node
    return None


def _summed(node: Node, moved: dict[Node, Tensor], count: int) -> Node:
    """Return what sums over all positions and is joined with rows at `node`, else `node`."""
    for one in operands(node):
        if one in moved and count not in moved[one].shape[1:]:
            while (before := [n for n in operands(one) if n in moved]) and all(
                count not in moved[n].shape[1:] for n in before
            ):
                one = before[0]
            return one
    return node


def _is_alike(change: Tensor, count: int) -> bool:
    """Return whether an axis of rows is moved alike by every position: each row holds all of them."""
    for axis in range(1, change.dim() - 1):
        if change.shape[axis + 1] == count:
            rows = change.movedim(axis + 1, 1)
            if bool((rows.reshape(*rows.shape[:2], -1).amax(-1) > 0).all()):
                return True
    return False


def _some_square_hidden(bench: Bench, sites: list[Site]) -> bool:
    """Return whether a mask hides the later keys of a chunk: those behind the query's own one."""
    for site in sites:
        if site.score is None:
            continue
        try:
            visible = levels_of(bench, site).visible
        except NotArrangedError:
            continue
        queries, keys = visible.shape[1:]
        later = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
        if keys > queries > 1 and not bool((visible & later).any()):
            own = visible.diagonal(keys - queries, 1, 2)
            if bool(own.all()):
                return True
    return False


def _picks_out_of_order(bench: Bench, node: Node) -> bool:
    """Return whether `node` takes rows by whole numbers that do not rise."""
    if op(node) not in PICKING:
        return False
    picked = [bench.recording.values.get(n) for n in operands(node)[1:]]
    return any(
        isinstance(v, Tensor)
        and v.dim() == 1
        and v.dtype in (torch.int64, torch.int32)
        and bool((v.diff() < 0).any())
        for v in picked
    )


def circular_line(bench: Bench, site: Site) -> Span | None:
    """Return the line that rolls the keys or values of `site`, and not its queries."""
    if site.k is None or site.q is None:
        return None
    beside = bench.dependence.ancestors([site.q.node])
    above = bench.dependence.ancestors([site.k.node, site.v.node]) | {site.k.node, site.v.node}
    rolled = [
        n
        for n in above - beside
        if (op(n) in CIRCULAR or _picks_out_of_order(bench, n)) and span_of(n) is not None
    ]
    return span_of(min(rolled, key=bench.dependence.order.__getitem__)) if rolled else None
