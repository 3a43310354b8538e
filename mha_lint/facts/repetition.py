"""Fewer key/value heads than query heads, repeated along another axis than that of the heads.

What is repeated has the right shape in the end. So it is looked at what each key and value row
holds: of which sample, which position and which channels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.grouped import Grouped, Stand, grouped
from mha_lint.facts.heads import head_codes, input_head_axes, shared_head_axes
from mha_lint.facts.order import NotArrangedError, order_of, score_operands, value_side
from mha_lint.facts.places import span_of
from mha_lint.model.position_facts import WrongRepeat
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, operands, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct

ROWS = 128
"""More keys than these are not compared one by one."""


def wrong_repeat(bench: Bench, site: Site) -> WrongRepeat | None:
    """Return along which other axis the heads of `site` (a member) were repeated, None if right."""
    q, k = site.q, site.k
    assert q is not None and k is not None
    held = grouped(bench, site)
    for which, operand in (("k", k), ("v", site.v)):
        if not _shared(site, q, operand):
            continue
        found = _channels(bench, site, operand, which)
        if found is None:
            found = _samples(bench, site, operand, which) or _positions(
                bench, site, operand, which, held
            )
        if found is not None:
            return WrongRepeat(found[0], which, found[1], repeated_at(bench, operand))
    return None


def repeated_at(bench: Bench, operand: Operand) -> Span | None:
    """Return where the elements of one projection are repeated on their way to `operand`."""
    if operand.source is None:
        return None
    start = operand.source.node
    path = bench.dependence.between(start, operand.node)
    known = {start, *path}
    for node in path:
        if not is_number(bench.recording, node):
            continue
        numbers = {n for n in operands(node) if is_number(bench.recording, n)}
        if not numbers or numbers - known:
            continue
        before = sum(math.prod(shape(bench.recording, n)) for n in numbers)
        after = math.prod(shape(bench.recording, node))
        if before and after > before and after % before == 0:
            return span_of(node)
    return None


def _shared(site: Site, q: Operand, operand: Operand) -> bool:
    """Return whether several query heads share a head, by the widths of the projections."""
    width, narrow = _width(site, q), _width(site, operand)
    return bool(width and narrow) and width != narrow and width % narrow == 0


def _width(site: Site, operand: Operand) -> int:
    """Return how many channels of its projection an operand reads, 0 where that is not known."""
    source, traced = operand.source, operand.trace
    if source is None or traced is None or source.kind != "projection":
        return 0
    if all(traced.clean[a] for a in source.channel_axes):
        return len([c for c in distinct(_channel(operand)) if c >= 0])
    ends = [o for o in (site.q, site.k, site.v) if o is not None and o.source is not None]
    alone = [o for o in ends if o.source is not None and o.source.node is source.node]
    return source.out_width if len(alone) == 1 else 0


def _channel(operand: Operand) -> Tensor:
    """Return which channel of the projection each element reads, -1 where that is not known."""
    source, traced = operand.source, operand.trace
    assert source is not None and traced is not None
    return _joint(operand, source.channel_axes)


def _joint(operand: Operand, axes: tuple[int, ...]) -> Tensor:
    """Return the index of each element along several axes of the source, as one number."""
    traced = operand.trace
    assert traced is not None
    found = torch.zeros_like(traced.index[0])
    known = traced.responds.clone()
    for axis in axes:
        found = found * traced.shape[axis] + traced.index[axis].clamp(min=0)
        known &= traced.index[axis] >= 0
    return torch.where(known, found, -1)


def _rows(bench: Bench, site: Site, operand: Operand, which: str, values: Tensor) -> Tensor | None:
    """Return `values` (the operand's shape) as (G, T_k, D)."""
    stand = Stand(bench, {operand.node: values})
    if which == "k":
        return score_operands(site, stand)[1]
    try:
        return value_side(site, stand, order_of(bench, site))[0]
    except NotArrangedError:
        return None


def _channels(bench: Bench, site: Site, operand: Operand, which: str) -> tuple[str, str] | None:
    """Return that one key holds a channel several times."""
    source, traced = operand.source, operand.trace
    if source is None or traced is None or not all(traced.clean[a] for a in source.channel_axes):
        return None
    rows = _rows(bench, site, operand, which, _channel(operand))
    if rows is None:
        return None
    known = rows.flatten(0, 1)[(rows >= 0).all(-1).flatten()]
    if not len(known):
        return None
    held = known[0].tolist()
    if len(set(held)) * 2 > len(held):
        return None
    listed = ", ".join(str(c) for c in held[:4])
    return "channels", f"one {_NAMES[which]} of the first head holds the channels {listed}, ..."


_NAMES = {"k": "key", "v": "value"}


def _samples(bench: Bench, site: Site, operand: Operand, which: str) -> tuple[str, str] | None:
    """Return that keys come from another sample than the query they meet."""
    q = site.q
    assert q is not None
    if q.source is None or operand.source is None or q.trace is None:
        return None
    if q.source.data_axes != operand.source.data_axes:
        return None
    own = score_operands(site, Stand(bench, {q.node: _joint(q, _sample_axes(bench, q))}))[0]
    rows = _rows(bench, site, operand, which, _joint(operand, _sample_axes(bench, operand)))
    if rows is None or len(distinct(own)) < 2:
        return None
    queries, keys = own.flatten(1).amax(-1), rows.flatten(1).amax(-1)
    apart = queries != keys
    if not bool(apart.any()):
        return None
    group = int(apart.nonzero()[0])
    return "samples", (
        f"queries of sample {int(queries[group])} meet {_NAMES[which]}s of sample"
        f" {int(keys[group])}"
    )


def _sample_axes(bench: Bench, operand: Operand) -> tuple[int, ...]:
    assert operand.source is not None
    heads = (*shared_head_axes(bench, operand), *input_head_axes(operand))
    rest = [a for a in operand.source.data_axes if a not in operand.position_axes]
    return tuple(a for a in rest if a not in heads)


def _positions(
    bench: Bench, site: Site, operand: Operand, which: str, held: Grouped
) -> tuple[str, str] | None:
    """Return that one head meets a position several times, or its keys in another order than others."""
    rows = _rows(bench, site, operand, which, _joint(operand, tuple(sorted(operand.position_axes))))
    if rows is None or rows.shape[1] > ROWS or not operand.position_axes:
        return None
    places = rows.amax(-1)
    if bool((places < 0).any()):
        return None
    name = _NAMES[which]

    def found(group: int) -> tuple[str, str]:
        listed = ", ".join(str(p) for p in places[group, :6].tolist())
        head = int(held.heads[group])
        return "positions", f"the {name}s of query head {head} are of positions {listed}, ..."

    for group, keys in enumerate(places.tolist()):
        if len(set(keys)) < len(keys):
            return found(group)
    own = (held.samples == held.samples[0]).nonzero().flatten()
    mixed = (places[own] != places[own[0]]).any(-1)
    if bool(mixed.any()):
        return found(int(own[int(mixed.long().argmax())]))
    codes = head_codes(bench, operand)
    heads = _rows(bench, site, operand, which, codes) if codes is not None else None
    if heads is not None:
        codes = heads.amax(-1)
        if bool((codes != codes[:, :1]).any()):
            return "positions", f"the {name}s of one query head belong to several {name} heads"
    return None
