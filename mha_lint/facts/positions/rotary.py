"""How queries, keys and values are rotated by position."""

from __future__ import annotations

import torch

from mha_lint.facts.bench import Bench
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.output import output_path
from mha_lint.facts.places import span_beside
from mha_lint.facts.positions.compared import turn_of
from mha_lint.facts.positions.fit import MOVES, is_rotation, lengths, moves_over_rows
from mha_lint.facts.positions.origins import follows_input, follows_parameters, repeat_span
from mha_lint.facts.positions.pairing import turn_span, wrong_pairs
from mha_lint.facts.positions.pairs import Turned, given_tables, operand_turns, turned_of
from mha_lint.facts.positions.repeats import repeats_of
from mha_lint.facts.positions.turns import Turn, turns_between
from mha_lint.facts.positions.uneven import uneven_turns
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable, Unknown
from mha_lint.model.position_facts import RepeatedPositions, Rotary, WrongTurnAxis
from mha_lint.model.source import Span
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct, trace


@unless_data_decides
def measure_rotary(bench: Bench, site: Site) -> Fact[Rotary]:
    """Return the rotation that `site` applies."""
    member = site.all[0]
    if member.score is None or member.q is None or member.k is None:
        return NotApplicable("the scores are no product of queries and keys")
    if member.kind in (Kind.LINEAR, Kind.CHANNEL):
        return NotApplicable(f"{member.kind} attention has no (T_q, T_k) scores")
    ends = {"q": member.q, "k": member.k, "v": member.v}
    given = {w: given_tables(bench, o) for w, o in ends.items()}
    turns = {w: operand_turns(bench, o, given[w]) for w, o in ends.items()}
    if not any(turns.values()):
        return NotApplicable("neither queries nor keys are rotated")
    sides: dict[str, Turned] = {}
    try:
        for which in "qk":
            if turns[which]:
                found = turned_of(bench, member, ends[which], turns[which], queries=which == "q")
                if found is None:
                    return Unknown(f"the rotation of {which} could not be followed to the scores")
                sides[which] = found
    except NotArrangedError as error:
        return Unknown(str(error))
    return _judged(bench, member, sides, turns)


def _judged(
    bench: Bench, site: Site, sides: dict[str, Turned], turns: dict[str, list[Turn]]
) -> Fact[Rotary]:
    turned = tuple(w for w, t in sides.items() if t.mixes)
    values = _values(bench, site, turns["v"])
    pairs = wrong_pairs(bench, site, sides)
    if not turned and values is None and pairs is None:
        return NotApplicable("no angle differs from zero in this call")
    tables = {w: tuple(n for t in found for n in t.sides) for w, found in turns.items()}
    stated = any(follows_input(bench, tables[w]) for w in sides)
    learned = any(follows_parameters(bench, tables[w]) for w in sides)
    free = pairs is None and not stated
    rotary = Rotary(
        turned=turned + (("v",) if values is not None else ()),
        pairs=pairs,
        axis=_axis(site, sides) if free and not learned else None,
        uneven=uneven_turns(bench, site, sides, turns, compare=free and not learned),
        values=values,
        values_turned=values is not None,
        repeated=_repeated(bench, site, sides) if free else None,
        gain=_gain(sides) if pairs is None else 1.0,
    )
    rows = ", ".join(
        f"{w}: {int((t.high[0] >= 0).sum())} of {t.high.shape[1]} features of a head are mixed in pairs"
        for w, t in sides.items()
    )
    return Known(rotary, rows)


def _gain(sides: dict[str, Turned]) -> float:
    """Return by how much the rotations of q and k lengthen what they rotate."""
    gain = 1.0
    for turned in sides.values():
        mixed = (turned.high >= 0)[:, None].expand(turned.one.shape)
        if bool(mixed.any()):
            gain *= float(lengths(turned)[mixed].mean())
    return float(f"{gain:.5g}")


def _axis(site: Site, sides: dict[str, Turned]) -> WrongTurnAxis | None:
    found: list[str] = []
    axis, example = "", ""
    for which, turned in sides.items():
        if len(distinct(turned.positions[0])) < 2 or moves_over_rows(turned):
            continue
        if not is_rotation(turned):
            continue
        for name, own, rest in (
            ("heads", turned.heads, turned.samples), ("samples", turned.samples, turned.heads)
        ):  # fmt: skip
            same = rest == rest[0]
            one, two = turned.one[same], turned.two[same]
            gap = ((one - one[:1]).abs() + (two - two[:1]).abs()).amax((1, 2))
            if len(distinct(own[same])) > 1 and float(gap.max()) > MOVES:
                at = int(gap.argmax())
                feature = int((turned.two[same][at, 0]).abs().argmax())
                found.append(which)
                axis = name
                example = (
                    f"{name[:-1]} {int(own[same][at])} turns feature {feature} by"
                    f" {_angle(turned, same, at, feature):.3g} rad (whole turns aside) at every position"
                )
                break
    if not found:
        return None
    return WrongTurnAxis(axis, tuple(found), example, turn_span(sides[found[0]], site))


def _angle(turned: Turned, same: torch.Tensor, at: int, feature: int) -> float:
    """Return the angle of a feature in the `at`-th of the groups that are `same`."""
    group = int(same.nonzero().flatten()[at])
    return turn_of(turned, group, 0, feature)


def _repeated(
    bench: Bench,
    site: Site,
    sides: dict[str, Turned],
) -> RepeatedPositions | None:
    for which in ("k", "q"):
        turned = sides.get(which)
        if turned is None or not turned.mixes or not is_rotation(turned):
            continue
        same = (turned.samples == turned.samples[0]) & (
            turned.positions == turned.positions[0]
        ).all(-1)
        parts = (turned.one[same], turned.two[same])
        rows = torch.cat([p.transpose(0, 1).flatten(1) for p in parts], -1)
        positions = turned.positions[0]
        if not bool((positions[1:] > positions[:-1]).all()):
            continue
        found = repeats_of(rows)
        if found is None or (found.fault == "same" and not _constant(turned)):
            continue
        first, second = int(positions[found.first]), int(positions[found.second])
        operand = site.q if which == "q" else site.k
        assert operand is not None
        length = int(positions.max()) + 1
        sides_of = tuple(n for t in turned.turns for n in t.sides)
        span = repeat_span(bench, sides_of, length, first, second) or turn_span(turned, site)
        return RepeatedPositions(
            found.fault, "the rotation", first, second, found.count, len(rows), span
        )
    return None


def _constant(turned: Turned) -> bool:
    """Return whether all groups are turned by the same angles: else they follow heads or samples."""
    parts = (turned.one, turned.two)
    return all(bool(((x - x[:1]).abs() <= MOVES).all()) for x in parts)


def _values(bench: Bench, site: Site, turns: list[Turn]) -> Span | None:
    """Return where the values are rotated by position, None where they are rotated back, or not."""
    for turn in turns:
        if not bool((turn.second >= 0).any()):
            continue
        traced = trace(bench.replay, turn.exit, site.v.node)
        if not traced.all_clean:
            continue
        flat = traced.flat().clamp(min=0)
        moving = any(
            bool((((x.reshape(-1)[flat]) - x.reshape(-1)[flat].select(axis, 0).unsqueeze(axis)).abs()
                  > MOVES).any())
            for x in (turn.a, turn.b) for axis in site.v.rows
        )  # fmt: skip
        if not moving:
            continue
        end = output_path(bench, site).merged
        if any(bool((t.second >= 0).any()) for t in turns_between(bench, site.context, end)):
            return None
        return span_beside(turn.exit, site.scores)
    return None
