"""Which key/value head each query head meets."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.grouped import Stand, grouped
from mha_lint.facts.heads import head_codes, input_head_axes, shared_head_axes
from mha_lint.facts.order import NotArrangedError, order_of, score_operands, value_side
from mha_lint.facts.places import span_of
from mha_lint.facts.repetition import repeated_at, wrong_repeat
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable, Unknown
from mha_lint.model.position_facts import HeadGroups
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source
from mha_lint.sites.trace import influence_codes, trace


@dataclass(frozen=True, slots=True, order=True)
class Head:
    """One head of one operand: the place of its projection, of its channels in it, and their set."""

    source: int
    place: float
    channels: int


@unless_data_decides
def measure_groups(bench: Bench, site: Site) -> Fact[HeadGroups]:
    """Return the key/value head of each query head of `site`."""
    members = site.all
    if site.kind in (Kind.LINEAR, Kind.CHANNEL) or any(
        m.score is None or m.q is None or m.k is None for m in members
    ):
        return NotApplicable("the scores are no product of queries and keys")
    try:
        repeat = next((r for m in members if (r := wrong_repeat(bench, m)) is not None), None)
        met = [heads for m in members for heads in _met(bench, m)]
    except NotArrangedError as error:
        return Unknown(str(error))
    if not met:
        return Unknown("the heads of queries, keys and values could not be told apart")
    queries, keys, values = (sorted(set(column)) for column in zip(*met, strict=True))
    first: dict[Head, tuple[Head, Head]] = {}
    for asking, *asked in met:
        if first.setdefault(asking, (asked[0], asked[1])) != tuple(asked):
            return Unknown("one query head meets several key heads")
    numbers = tuple(keys.index(first[one][0]) for one in queries)
    value_numbers = tuple(values.index(first[one][1]) for one in queries)
    q, k = members[0].q, members[0].k
    assert q is not None and k is not None
    found = HeadGroups(
        num_heads=len(queries),
        num_kv_heads=max(len(keys), len(values)),
        keys=numbers,
        values=value_numbers,
        order=_order(numbers, len(keys)),
        span=span_of(members[1].scores)
        if len(members) > 1
        else repeated_at(bench, k) or repeated_at(bench, q) or _split_at(bench, q),
        value_span=repeated_at(bench, members[0].v),
        repeat=repeat,
    )
    listed = ", ".join(map(str, numbers))
    return Known(found, f"query heads 0 to {len(queries) - 1} meet the key heads {listed}")


def _order(numbers: tuple[int, ...], count: int) -> str:
    heads = len(numbers)
    if count == 1:
        return "single"
    if count == heads:
        return "each"
    if heads % count == 0:
        if all(n == i // (heads // count) for i, n in enumerate(numbers)):
            return "blocked"
        if all(n == i % count for i, n in enumerate(numbers)):
            return "tiled"
    return "other"


def _met(bench: Bench, site: Site) -> list[tuple[Head, Head, Head]]:
    """Return for each group of the first sample the heads of q, k and v that meet in it."""
    assert site.q is not None and site.k is not None
    held = grouped(bench, site)
    columns: list[list[Head]] = []
    for which, operand in (("q", site.q), ("k", site.k), ("v", site.v)):
        found = _heads_of(bench, site, operand, which)
        if found is None and which == "v":
            found = columns[1]  # where values cannot be followed, keys alone are judged
        if found is None:
            return []
        columns.append(found)
    groups = (held.samples == held.samples[0]).nonzero().flatten().tolist()
    return [(columns[0][g], columns[1][g], columns[2][g]) for g in groups]


def _heads_of(bench: Bench, site: Site, operand: Operand, which: str) -> list[Head] | None:
    """Return the head of `operand` in each group, None where heads cannot be told apart."""
    if operand.source is None or operand.trace is None:
        return None
    operand = _behind_norm(bench, operand, operand.source)
    source, codes = operand.source, head_codes(bench, operand)
    if source is None or codes is None:
        return None
    found: list[Head] = []
    try:
        arranged = [
            _arranged(bench, site, operand, t, which)
            for t in (codes, _places(bench, operand, source))
        ]
    except NotArrangedError:
        return None
    for ids, where in zip(*arranged, strict=True):
        known = ids >= 0
        if not bool(known.any()):
            return None
        place = float(f"{where[known].double().mean():.6g}")
        found.append(Head(_rank(bench, source), place, int(ids.max())))
    return found


def _behind_norm(bench: Bench, operand: Operand, source: Source) -> Operand:
    """Return `operand` as coming from behind a norm over all heads, in which every head is mixed."""
    if source.kind != "projection" or all(
        operand.trace is None or operand.trace.clean[a] for a in source.channel_axes
    ):
        return operand
    sized = shape(bench.recording, source.node)
    alike = [
        n for n in bench.dependence.bottlenecks(source.node, operand.node)
        if is_number(bench.recording, n) and n is not operand.node
        and (found := shape(bench.recording, n))[:-1] == sized[:-1]
        and found[-1] > 0 and sized[-1] % found[-1] == 0
    ]  # fmt: skip
    if not alike:
        return operand
    behind = replace(source, node=alike[-1])
    return replace(operand, source=behind, trace=trace(bench.replay, alike[-1], operand.node))


def _rank(bench: Bench, source: Source) -> int:
    """Return a number that orders projections, the same for each call of one weight."""
    order, known = bench.dependence.order, bench.recording.parameters
    return min([order[known[n]] for n in source.parameters if n in known] or [order[source.node]])


def _arranged(bench: Bench, site: Site, operand: Operand, values: Tensor, which: str) -> Tensor:
    """Return `values` (the operand's shape) as (G, R, D)."""
    stand = Stand(bench, {operand.node: values})
    if which == "v":
        return value_side(site, stand, order_of(bench, site))[0]
    return score_operands(site, stand)[0 if which == "q" else 1]


def _places(bench: Bench, operand: Operand, source: Source) -> Tensor:
    """Return where in the projection the channels lie that each element of the operand reads.

    Of two channels that are mixed the mean is known, since i + j = (i & j) + (i | j).
    """
    traced = operand.trace
    assert traced is not None
    place = torch.zeros(traced.responds.shape, dtype=torch.float64)
    for axis in (*shared_head_axes(bench, operand), *input_head_axes(operand)):
        place = place * traced.shape[axis] + traced.index[axis]
    for axis in source.channel_axes:
        if traced.clean[axis]:
            own = traced.index[axis].double()
        else:
            own = _middle(influence_codes(bench.replay, source.node, operand.node, axis))
        place = place * traced.shape[axis] + own
    return place


def _middle(code: Tensor) -> Tensor:
    """Return the mean of the lowest and highest slice that `influence_codes` admits."""
    both, either = torch.zeros_like(code), torch.zeros_like(code)
    for bit in range(31):
        on, off = (code >> 2 * bit) & 1, (code >> (2 * bit + 1)) & 1
        both |= (on & (1 - off)) << bit
        either |= on << bit
    return (both + either).double() / 2


def _split_at(bench: Bench, operand: Operand) -> Span | None:
    """Return the first step behind the projection, where the order of heads is chosen."""
    if operand.source is None:
        return None
    path = bench.dependence.between(operand.source.node, operand.node)
    return span_of(path[0] if path else operand.node)
