"""A rotation whose pairs do not fit: what shows it, and where it is."""

from __future__ import annotations

import torch

from mha_lint.facts.bench import Bench
from mha_lint.facts.places import span_beside, span_of
from mha_lint.facts.positions.fit import angle, pair_fault, stretch
from mha_lint.facts.positions.origins import layout_span
from mha_lint.facts.positions.pairs import Turned
from mha_lint.facts.positions.turns import Turn, tables_of
from mha_lint.model.position_facts import PairFault, WrongPairs
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, operands
from mha_lint.sites.site import Site
from mha_lint.sites.trace import trace


def turn_span(turned: Turned, site: Site) -> Span | None:
    """Return where the rotation is applied, in the function that makes the scores."""
    return span_beside(turned.turns[0].exit, site.scores)


def wrong_pairs(bench: Bench, site: Site, sides: dict[str, Turned]) -> WrongPairs | None:
    """Return a rotation of q or k whose pairs do not fit, None where all do."""
    faults = {w: f for w, t in sides.items() if not site.extra and (f := pair_fault(t)) is not None}
    if not faults:
        return None
    which, fault = next(iter(faults.items()))
    turned = sides[which]
    turn = turned.turns[0]
    table = None
    at = turn_span(turned, site) if fault is PairFault.TORN else _exchange_span(bench, turn)
    if fault is PairFault.ALONE:
        factors = turned.one.abs()
        group, row, feature = (int(p) for p in torch.unravel_index(factors.argmin(), factors.shape))
        example = (
            f"feature {feature} of a head is multiplied by {float(factors.min()):.2g} at position"
            f" {int(turned.positions[group, row])}, and mixed with no other"
        )
        kept = float(factors.min()), float(factors.max())
        return WrongPairs(fault, tuple(faults), example, kept, at, table)
    low, high, group, row, feature = stretch(turned)
    partner = int(turned.partner[group, feature])
    position = int(turned.positions[group, row])
    if fault is PairFault.ANGLES:
        angles = [angle(turned, group, row, f) for f in (feature, partner)]
        example = (
            f"at position {position} feature {feature} of a head is turned by {angles[0]:.3g} rad,"
            f" and feature {partner}, the other of its pair, by {angles[1]:.3g} rad (half turns and"
            " signs aside)"
        )
    elif fault is PairFault.SIGNS:
        example = (
            f"features {feature} and {partner} each add the other with the same sign at position"
            f" {position}"
        )
    elif fault is PairFault.TORN:
        example = (
            f"feature 0 of head 0 is turned with channel {int(turned.high[0, 0])}, which is in"
            " another head"
        )
    else:
        example = _several(turned)
    count = bench.replay.base(turn.entry).shape[turn.axis]
    if fault is PairFault.ANGLES:
        table = layout_span(bench, turn.sides, count)
    kept = (1.0, 1.0) if fault in (PairFault.TORN, PairFault.PARTNERS) else (low, high)
    return WrongPairs(fault, tuple(faults), example, kept, at, table)


def _several(turned: Turned) -> str:
    low, high = turned.low[0].tolist(), turned.high[0].tolist()
    partners: dict[int, set[int]] = {}
    for a, b in zip(low, high, strict=True):
        if b >= 0:
            partners.setdefault(a, set()).add(b)
            partners.setdefault(b, set()).add(a)
    channel = max(partners, key=lambda c: len(partners[c]))
    listed = " and ".join(str(p) for p in sorted(partners[channel]))
    return f"channel {channel} of a head is turned together with channels {listed}"


def _exchange_span(bench: Bench, turn: Turn) -> Span | None:
    """Return where the channels of a pair are exchanged, else where their rotation is written."""
    tables = tables_of(bench, turn.entry, turn.exit)
    sized = bench.replay.base(turn.entry).numel()
    for node in bench.dependence.between(turn.entry, turn.exit)[:-1]:
        if not is_number(bench.recording, node) or tables & set(operands(node)):
            continue
        if bench.replay.base(node).numel() != sized or bench.dependence.ancestors([node]) & tables:
            continue
        traced = trace(bench.replay, turn.entry, node)
        if not traced.all_clean or traced.gain is None:
            continue
        if bool((traced.gain < 0).any()) or len(operands(node)) > 1:
            return span_of(node)
    return span_of(turn.exit)
