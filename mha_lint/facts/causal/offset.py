"""A triangle over more keys than queries must end at the last query, not start at the first key.

The keys of a cache stand in front: query i of the new ones owns key ``past + i``. Which key that is
is measured: the one that its position moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.causal.lines import cut_line, is_given, says_is_causal
from mha_lint.facts.causal.rows import held_moves, rows_of
from mha_lint.facts.influence import Entry, entries
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.order import NotArrangedError
from mha_lint.model.causal_facts import Misalignment
from mha_lint.sites.dependence import is_number, shape
from mha_lint.sites.site import Site


@dataclass(frozen=True, slots=True)
class Offset:
    """Query 0 sees keys up to ``last`` and owns key ``own``; ``hidden``: it does not see its own."""

    queries: int
    keys: int
    last: int
    own: int
    hidden: bool


def misalignments(bench: Bench, *, made: str = "") -> list[Misalignment]:
    """Return the sites of `bench` whose triangle is misplaced; a mask from the caller is his own."""
    found: list[Misalignment] = []
    for index, site in enumerate(bench.sites):
        member = site.all[0]
        offset = wrong_offset(bench, member)
        if offset is None or is_given(bench, member):
            continue
        at = cut_line(bench, member)
        found.append(
            Misalignment(
                index, at, offset.queries, offset.keys, offset.last, offset.own, offset.hidden,
                says_is_causal(at), made,
            )
        )  # fmt: skip
    return found


def wrong_offset(bench: Bench, site: Site) -> Offset | None:
    """Return how the triangle of `site` (a member) is misplaced, None if it is not."""
    if site.score is None:
        return None
    try:
        levels = levels_of(bench, site)
    except NotArrangedError:
        return None
    visible = levels.visible
    _, t_q, t_k = visible.shape
    if t_q == t_k or t_k < t_q:
        return None
    own = _own_keys(bench, site, t_q, t_k)
    if own is None:
        return None
    found = {_triangle(one) for one in visible}
    if len(found) != 1:
        return None
    (last,) = found
    if last is None or last == own or (last > own and t_q == 1):
        return None
    if own - last == 1:
        return None  # no query sees itself, in the right place otherwise
    return Offset(t_q, t_k, last, own, hidden=last < own)


def _triangle(visible: Tensor) -> int | None:
    """Return the last key that query 0 sees, if each later query sees just one more, without gaps.

    One query alone must see all keys up to there: a window may end anywhere.
    """
    t_q, t_k = visible.shape
    place = torch.arange(t_k)
    last = torch.where(visible, place, -1).amax(1)
    first = torch.where(visible, place, t_k).amin(1)
    if bool((last < 0).any()) or int(last[0]) == t_k - 1 or (t_q == 1 and int(first[0]) > 0):
        return None
    grows = last == (last[0] + torch.arange(t_q)).clamp(max=t_k - 1)
    whole = visible.sum(1) == last - first + 1
    return int(last[0]) if bool((grows & whole).all()) else None


def _own_keys(bench: Bench, site: Site, t_q: int, t_k: int) -> int | None:
    """Return the key that query 0 owns, if query i owns the i-th one behind it."""
    assert site.q is not None and site.k is not None
    rows = rows_of(bench, site)
    for entry in _entries(bench, site, t_q):
        assert entry.axis is not None
        positions, (q, k) = held_moves(bench, entry, [site.q.node, site.k.node])
        of_queries = _which(positions, q, rows.q)
        of_keys = _which(positions, k, rows.k)
        if of_queries is None or of_keys is None:
            continue
        places = [
            int((of_keys == p).nonzero()[0]) if bool((of_keys == p).sum() == 1) else -1
            for p in of_queries.tolist()
        ]
        if min(places) >= 0 and places == list(range(places[0], places[0] + t_q)):
            return places[0]
    return None


def _entries(bench: Bench, site: Site, t_q: int) -> list[Entry]:
    """Return the entries of `site` with their axes; of a single new position any axis of one will do."""
    assert site.q is not None and site.k is not None
    found: list[Entry] = []
    for entry in entries(bench):
        below = bench.dependence.descendants([entry.node])
        if site.q.node not in below or site.k.node not in below:
            continue
        if entry.axis is not None:
            found.append(entry)
        elif t_q == 1 and is_number(bench.recording, entry.node):
            ones = [a for a, n in enumerate(shape(bench.recording, entry.node)) if n == 1]
            found += [Entry(entry.node, entry.argument, a) for a in ones[-1:]]
    return found


def _which(positions: list[int], change: Tensor, rows: Tensor) -> Tensor | None:
    """Return the position that moves each row, -1 for none; None where several move one row."""
    moved = change.reshape(len(positions), -1)[:, rows.reshape(-1)]
    hit = (moved > 0).reshape(len(positions), *rows.shape).any(-1)
    if bool((hit.sum(0) > 1).any()):
        return None
    names = torch.tensor(positions)[:, None].expand_as(hit)
    return torch.where(hit, names, -1).amax(0)
