"""Which channels of a projection each group of an operand reads: heads, told by measurement."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Dims, Fact, Kind, Known, NotApplicable, Unknown
from mha_lint.sites.dependence import shape
from mha_lint.sites.operand import FEW_SLICES, Operand
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source
from mha_lint.sites.trace import distinct, dominant_index, mostly_varies_along, trace, varies_along


def head_codes(bench: Bench, operand: Operand) -> Tensor | None:
    """Return an int64 tensor of the operand's shape whose values tell heads apart, or None.

    Two elements have the same value when their feature vectors read the same set of channels of
    the projection (and, where one small map serves all heads, the same slice of its input).
    """
    if operand.source is None or operand.trace is None:
        return None
    _, by_vector = bench.finder.operands.channel_maps(
        operand.source, operand.trace, operand.node, operand.features
    )
    code = torch.zeros(operand.trace.responds.shape, dtype=torch.int64)
    for part in by_vector:
        code = code * 1_000_003 + part
    for axis in shared_head_axes(bench, operand):
        code = code * 1_000_003 + operand.trace.index[axis]
    if operand.source.kind == "input":
        for axis in input_head_axes(operand):
            code = code * 1_000_003 + operand.trace.index[axis]
    return torch.where(operand.trace.responds, code, torch.full_like(code, -1))


def input_head_axes(operand: Operand) -> tuple[int, ...]:
    """Return the axes of a ready-made (B, h, T, d) argument that hold heads: all groups but the first."""
    source = operand.source
    if source is None or source.kind != "input" or len(source.data_axes) < 3:
        return ()
    over = [a for a in source.data_axes if any(a in operand.varies[g].data for g in operand.groups)]
    return tuple(a for a in over if a not in operand.position_axes)[1:]


def shared_head_axes(bench: Bench, operand: Operand) -> tuple[int, ...]:
    """Return the data axes of a projection that hold heads: one small map serves every head.

    Such an axis was a part of the channels of what the projection reads, and the operand has it
    among its groups.
    """
    source = operand.source
    if (
        source is None
        or source.kind != "projection"
        or source.reads is None
        or len(source.channel_axes) != 1
    ):
        return ()
    out, into = shape(bench.recording, source.node), shape(bench.recording, source.reads)
    if source.channel_axes[0] != len(out) - 1 or out[:-1] != into[:-1] or len(into) < 3:
        return ()
    grouped = frozenset().union(*(operand.varies[a].data for a in operand.groups))
    candidates = [a for a in source.data_axes if a in grouped and a not in operand.position_axes]
    if not candidates:
        return ()
    behind = [s for s in bench.finder.sources.of(source.reads) if s.kind != "learned"]
    if not behind or behind[0].node is source.reads or _own_projection(bench, behind[0]):
        return ()
    traced = trace(bench.replay, behind[0].node, source.reads)
    feature = [
        c
        for c in range(len(traced.index))
        if traced.clean[c] and varies_along(traced.index[c], len(into) - 1)
    ]
    if feature or any(not traced.clean[c] for c in behind[0].data_axes):
        if len(feature) != 1:
            return ()  # patches: several axes of the input make one vector
        return tuple(a for a in candidates if varies_along(traced.index[feature[0]], a))
    # A norm over the channels stands between: the channel that moves an element most is its own.
    mixed = [c for c in behind[0].channel_axes if traced.shape[c] <= FEW_SLICES]
    if len(mixed) != 1:
        return ()
    own = dominant_index(bench.replay, behind[0].node, source.reads, mixed[0])
    if not mostly_varies_along(own, len(into) - 1):
        return ()
    width = traced.shape[mixed[0]]
    return tuple(
        a for a in candidates if into[a] * into[-1] == width and mostly_varies_along(own, a)
    )


def _own_projection(bench: Bench, source: Source) -> bool:
    """Return whether a projection feeds one operand alone: then it has told the heads apart already."""
    if source.kind != "projection":
        return False
    return bench.finder.sources.feeds(source.node) < 2


def count_heads(bench: Bench, operands: list[Operand]) -> int | None:
    """Return how many different heads the operands (one per member) hold together."""
    seen: set[tuple[object, ...]] = set()
    for operand in operands:
        codes = head_codes(bench, operand)
        if codes is None or operand.source is None:
            return None
        for code in distinct(codes):
            if code != -1:
                seen.add(
                    (
                        operand.source.parameters,
                        operand.source.node
                        if len(operands) > 1 and not operand.source.parameters
                        else None,
                        code,
                    )
                )
    return len(seen) or None


@unless_data_decides
def measure_dims(bench: Bench, site: Site) -> Fact[Dims]:
    """Return the sizes of `site`."""
    first = site.all[0]
    if first.q is None or first.k is None or first.kind is Kind.POOLING:
        return _dims_without_product(bench, site)
    if first.kind in (Kind.LINEAR, Kind.CHANNEL):
        return NotApplicable(f"{first.kind} attention has no (T_q, T_k) scores")

    def size(node: Node, axes: tuple[int, ...]) -> int:
        return math.prod(shape(bench.recording, node)[a] for a in axes)

    members = site.all
    heads = count_heads(bench, [m.q for m in members if m.q is not None])
    kv_heads = count_heads(bench, [m.k for m in members if m.k is not None])
    head_dim = size(first.q.node, first.q.features)
    v_dim = size(first.v.node, first.v.features) or 1
    t_q, t_k = size(first.q.node, first.q.rows), size(first.k.node, first.k.rows)
    if heads is None or kv_heads is None:
        return Unknown("the heads of q and k could not be told apart: their source is not known")
    heads = max(
        heads, _same_map_members(bench, site), _heads_by_size(bench, first.q) * len(members)
    )
    kv_heads = max(kv_heads, _heads_by_size(bench, first.k) * len(members))
    source = first.q.source
    assert source is not None
    d_model = source.in_width if source.kind == "projection" else heads * head_dim
    shared = shared_head_axes(bench, first.q)
    for axis in shared:
        d_model *= shape(bench.recording, source.node)[axis]
    d_model = bench.recording.widths.get(d_model, d_model)
    groups = size(first.scores, first.group_axes) * len(members)
    return Known(
        Dims(
            d_model, heads, min(kv_heads, heads), head_dim, v_dim, t_q, t_k, max(1, groups // heads)
        ),
        f"scores {shape(bench.recording, first.scores)}",
    )


def _heads_by_size(bench: Bench, operand: Operand) -> int:
    """Return how often the operand holds each token, 1 where channels tell the heads apart.

    A norm over all channels, before the split, makes every head read every channel.
    """
    source, traced = operand.source, operand.trace
    if (
        source is None
        or traced is None
        or source.kind != "projection"
        or len(source.channel_axes) != 1
    ):
        return 1
    if traced.clean[source.channel_axes[0]]:
        return 1
    sizes = shape(bench.recording, source.node)
    tokens = math.prod(sizes[a] for a in source.data_axes)
    width = math.prod(shape(bench.recording, operand.node)[a] for a in operand.features)
    held = math.prod(shape(bench.recording, operand.node)) // max(1, tokens * width)
    return held if held >= 1 and held * width <= source.out_width else 1


def _same_map_members(bench: Bench, site: Site) -> int:
    """Return how many members a loop has whose heads share one weight (they read the same data)."""
    if not site.members:
        return 1
    first = site.members[0].q
    reads = {m.q.source.reads for m in site.members if m.q is not None and m.q.source is not None}
    same = first is not None and first.source is not None and len(reads) == 1
    distinct = {m.q.source.call for m in site.members if m.q is not None and m.q.source is not None}
    return len(distinct) if same and len(distinct) == len(site.members) else 1


def _dims_without_product(bench: Bench, site: Site) -> Fact[Dims]:
    if site.kind is Kind.POOLING:
        return NotApplicable("pooling has no queries of its own")
    return NotApplicable("the scores are no product of queries and keys")
