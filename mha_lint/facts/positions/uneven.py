"""Queries and keys that are rotated differently: which, how, and where."""

from __future__ import annotations

import math

import torch

from mha_lint.facts.bench import Bench
from mha_lint.facts.positions.compared import NEAR, difference, stays, turn_of
from mha_lint.facts.positions.pairing import turn_span
from mha_lint.facts.positions.pairs import Turned, vector_sources
from mha_lint.facts.positions.shift import further_products
from mha_lint.facts.positions.turns import Turn
from mha_lint.model.position_facts import UnevenTurns
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site

NAMES = {"q": "the queries", "k": "the keys"}


def uneven_turns(
    bench: Bench,
    site: Site,
    sides: dict[str, Turned],
    turns: dict[str, list[Turn]],
    *,
    compare: bool,
) -> UnevenTurns | None:
    """Return how q and k are rotated differently, None where they are rotated alike.

    `compare`: where both are rotated, compare the angles.
    """
    q, k = site.q, site.k
    assert q is not None and k is not None
    for which, other, operand, twin in (("q", "k", k, q), ("k", "q", q, k)):
        turned = sides.get(which)
        if turned is None or not turned.mixes or turns[other]:
            continue
        if not _proper(turned) or not _plain(bench, operand, twin):
            return None
        position = int(turned.positions[0].max())
        example = (
            f"{NAMES[which]} are turned by position (up to {position}), and equal content makes"
            f" equal {NAMES[other].removeprefix('the ')} at all positions"
        )
        return UnevenTurns("one-sided", which, other, 0, example, turn_span(turned, site), None)
    if not compare or set(sides) != {"q", "k"} or _cached(bench, site):
        return None
    if further_products(bench, site):
        return None  # several products, each with positions of its own, as in self-extension
    same = q.source is not None and k.source is not None and _same_tokens(q, k)
    found = difference(sides["q"], sides["k"], same_tokens=same)
    if found is None:
        return None
    spans = turn_span(sides["q"], site), turn_span(sides["k"], site)
    if found.fault == "shifted":
        example = f"the key of position t is turned as the query of position t + {found.shift}"
        if found.shift < 0:
            example = f"the query of position t is turned as the key of position t + {-found.shift}"
    else:
        angles = (
            turn_of(sides["q"], found.group, found.row, found.feature),
            turn_of(sides["k"], found.group, found.other, found.feature),
        )
        position = int(sides["q"].positions[found.group, found.row])
        example = (
            f"at position {position} feature {found.feature} of a query is turned by {angles[0]:.3g}"
            f" rad, that of a key by {angles[1]:.3g}" + (
                " rad the other way" if found.fault == "opposite" else " rad"
            ) + " (whole turns and signs aside)"
        )  # fmt: skip
    which, other = _odd_one(bench, sides)
    ends = dict(zip("qk", spans, strict=True))
    return UnevenTurns(found.fault, which, other, found.shift, example, ends[which], ends[other])


def _odd_one(bench: Bench, sides: dict[str, Turned]) -> tuple[str, str]:
    """Return the operand to look at first: that which is turned at its start, else the later one."""
    first = {w: torch.minimum(t.one[:, 0].abs(), t.two[:, 0].abs()) for w, t in sides.items()}
    start = {w: float(mixed.max()) > NEAR for w, mixed in first.items()}
    order = {w: bench.dependence.order[t.turns[-1].exit] for w, t in sides.items()}
    which = max("kq", key=lambda w: (start[w] and not all(start.values()), order[w]))
    return which, "q" if which == "k" else "k"


def _proper(turned: Turned) -> bool:
    """Return whether what is mixed stands in pairs, as a rotation's channels do."""
    mixed = turned.high >= 0
    return bool(turned.paired[mixed].all())


def _plain(bench: Bench, operand: Operand, twin: Operand) -> bool:
    """Return whether `operand` comes from projections here, the same at all positions."""
    sizes = bench.replay.base(operand.node).shape
    if math.prod(sizes[a] for a in operand.rows) < 2:
        return False  # one row: it may stand where the angle is zero
    sources = vector_sources(bench, operand)
    own = twin.source.reads if twin.source is not None else None
    for source in sources:
        if source.kind != "projection" and source.node is not own:
            return False
        if not stays(bench, operand, source):
            return False
    return bool(sources)


def _same_tokens(q: Operand, k: Operand) -> bool:
    assert q.source is not None and k.source is not None
    return (q.source.reads or q.source.node) is (k.source.reads or k.source.node)


def _cached(bench: Bench, site: Site) -> bool:
    """Return whether keys of an earlier call stand beside those of this one."""
    assert site.k is not None
    kinds = {s.kind for s in vector_sources(bench, site.k)}
    return "input" in kinds and len(kinds) > 1
