"""From the context to the return: where the heads are merged, and which learned map mixes them."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.heads import head_codes
from mha_lint.facts.places import forward_of, return_after, span_in_forward, span_of
from mha_lint.facts.pooled import asks_as_one
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Dims, Fact, Kind, Known, NotApplicable, OutputProjection, Unknown
from mha_lint.sites.dependence import Dependence, is_tensor, op, operands, shape
from mha_lint.sites.site import Site
from mha_lint.sites.source import CONVOLUTIONS, Source
from mha_lint.sites.trace import distinct, trace, varies_along


@dataclass(frozen=True, slots=True)
class OutputPath:
    """``merged``: what W_O reads, or what leaves the site when there is none. ``map``: W_O's source.

    ``features``: the axes of `merged` that W_O sums over (the last one when there is none).
    ``dead``: learned maps of the context whose result never reaches an output. ``exit``: the last
    node before the residual or the return.
    """

    merged: Node
    features: tuple[int, ...]
    map: Source | None
    mixes: bool
    dead: tuple[Source, ...]
    exit: Node
    stopped_by: str
    stop: Node | None = None


def output_path(bench: Bench, site: Site) -> OutputPath:
    """Follow the context of `site` to its output projection, the residual or the return."""
    dep, sources = bench.dependence, bench.finder.sources
    contexts = {m.context for m in site.all}
    reads = _site_inputs(site)
    above_reads = dep.ancestors(reads)
    region: set[Node] = set(contexts)
    maps: list[Source] = []
    dead: list[Source] = []
    exits: list[tuple[Node, str, Node | None]] = []
    for node in _behind(dep, region):
        inside = [n for n in operands(node) if n in region]
        if node.op == "output":
            exits += [(n, "the return", None) for n in inside]
            continue
        if not is_tensor(bench.recording, node) and op(node) not in (
            "split",
            "chunk",
            "unbind",
            "lstm",
            "gru",
        ):
            continue
        if sources.is_mixing(node):
            exits += [(n, "another contraction", node) for n in inside]
            continue
        if op(node) in ("add", "sub") and _is_residual(bench, node, region, above_reads):
            exits += [(n, "the residual", node) for n in inside]
            continue
        region.add(node)
        found = sources.learned_map(node)
        if found is not None and found[0] in region:
            source = sources.at(node)
            assert source is not None
            (maps if node in dep.live else dead).append(source)
    for node in dep.recording.outputs:
        if node in region:
            exits.append((node, "the return", None))
    live_exits = (
        [e for e in exits if e[0] in dep.live] or exits or [(site.context, "nothing", None)]
    )
    moves = _head_moves(bench, site)
    per_head_width = _vector_width(bench, site)
    for source in maps:
        # A map over more channels than one head has is the output projection, even where a wrong
        # merge hands it several positions of a single head.
        if source.in_width > per_head_width or _mixes(bench, moves, source.call):
            return _with_map(bench, source, dead, source.call, "the output projection")
    if maps:
        per_head = next((e for e in live_exits if _mixes(bench, moves, e[0])), None)
        if per_head is not None:
            return _with_map(bench, maps[0], dead, per_head[0], per_head[1])
    first_exit, why, stop = min(live_exits, key=lambda e: dep.order[e[0]])
    channel = _feature_axes(bench, site, first_exit)
    return OutputPath(first_exit, channel, None, False, tuple(dead), first_exit, why, stop)


def _behind(dep: Dependence, region: set[Node]) -> Iterator[Node]:
    """Yield in order each node that reads `region`, which grows meanwhile, and is not in it."""
    waiting = [dep.order[n] for r in region for n in dep.users(r)]
    heapq.heapify(waiting)
    last = -1
    while waiting:
        place = heapq.heappop(waiting)
        node = dep.nodes[place]
        if place == last or node in region:
            continue
        last = place
        yield node
        if node in region:
            for user in dep.users(node):
                heapq.heappush(waiting, dep.order[user])


def _feature_axes(bench: Bench, site: Site, node: Node) -> tuple[int, ...]:
    """Return the axes of `node` along which channels vary and positions do not, else the last one."""
    if not is_tensor(bench.recording, node):
        return ()
    rank = len(shape(bench.recording, node))
    member = site.all[0]
    traced = trace(bench.replay, member.context, node)
    labels = member.value.out_labels
    free = member.value.free(member.weights_left)
    rows = [i for i, x in enumerate(labels) if x is not None and x in free]
    own = [labels.index(x) for x in member.value.free(not member.weights_left) if x in labels]
    found = tuple(
        axis
        for axis in range(rank)
        if any(traced.clean[a] and varies_along(traced.index[a], axis) for a in own)
        and not any(traced.clean[a] and varies_along(traced.index[a], axis) for a in rows)
    )
    return found or ((rank - 1,) if rank else ())


def _vector_width(bench: Bench, site: Site) -> int:
    """Return how many channels of one head a context vector holds."""
    member = site.all[0]
    sizes = shape(bench.recording, member.v.node)
    width = 1
    for axis in member.v.features:
        width *= sizes[axis]
    return width


def _with_map(bench: Bench, source: Source, dead: list[Source], end: Node, why: str) -> OutputPath:
    assert source.reads is not None
    rank = len(shape(bench.recording, source.reads))
    if op(source.call) in CONVOLUTIONS:
        features: tuple[int, ...] = (rank - 1 - int(op(source.call)[4]),)
    else:
        found = bench.finder.sources.contraction(source.call)
        assert found is not None
        left = found.left is source.reads
        _, labels = found.side(left)
        features = tuple(i for i, x in enumerate(labels) if x in found.summed)
    return OutputPath(source.reads, features, source, True, tuple(dead), end, why)


def _site_inputs(site: Site) -> list[Node]:
    found: list[Node] = []
    for member in site.all:
        for operand in (member.q, member.k, member.v):
            if operand is not None:
                found += [
                    s.reads if s.reads is not None else s.node
                    for s in operand.sources
                    if s.kind != "learned"
                ]
    return found


def residual_inputs(bench: Bench, site: Site, path: OutputPath) -> tuple[str, ...]:
    """Return the inputs of the states to which the result of `site` is added, also behind W_O."""
    contexts = {m.context for m in site.all}
    reads = _site_inputs(site)
    above = bench.dependence.ancestors(reads)
    below = bench.dependence.descendants(contexts)
    for node in below:
        if op(node) != "add" or not any(n in below for n in operands(node)):
            continue
        others = [n for n in operands(node) if n in above and n not in below]
        if others and is_tensor(bench.recording, others[0]):
            return tuple(sorted(bench.dependence.inputs_of(others[0])))
    return ()


def _is_residual(
    bench: Bench, node: Node, region: set[Node], above_reads: Collection[Node]
) -> bool:
    """Return whether `node` adds the site's own input (a skip connection) to the context."""
    for other in operands(node):
        if other in region or not bench.dependence.on_data(other):
            continue
        if other in above_reads:
            return True
    return False


def _head_moves(bench: Bench, site: Site) -> list[dict[Node, Tensor]]:
    """Return substitutions that move the context of one head each (two heads suffice)."""
    generator = torch.Generator().manual_seed(17)
    moves: list[dict[Node, Tensor]] = []
    if site.members:
        for member in (site.members[0], site.members[-1]):
            base = bench.replay.base(member.context)
            noise = torch.randn(base.shape, generator=generator, dtype=base.dtype)
            moves.append({member.context: base + noise})
        return moves
    ids = context_heads(bench, site)
    if ids is None:
        return moves
    base = bench.replay.base(site.context)
    noise = torch.randn(base.shape, generator=generator, dtype=base.dtype)
    known = [i for i in distinct(ids) if i != -1]
    for head in (known[0], known[-1]) if len(known) > 1 else ():
        moves.append({site.context: base + noise * (ids == head)})
    return moves


def context_heads(bench: Bench, site: Site) -> Tensor | None:
    """Return a tensor of the context's shape that tells its heads apart (needs a head axis)."""
    operand = site.q if site.q is not None and not site.q.learned else site.v
    score = site.score
    if score is None or site.q is None:
        return None
    codes = head_codes(bench, operand)
    if codes is None:
        return None
    if operand is site.v:
        return None
    # Codes of q by score axis, then from the scores' axes through the weights to the context.
    _, labels = score.side(not site.key_left)
    per_score = by_labels(
        codes,
        labels,
        score.out_labels,
        tuple(bench.replay.base(score.node).shape),
        operand.features,
    )
    flat = torch.zeros_like(site.origin[0])
    sizes = tuple(bench.replay.base(score.node).shape)
    for n, index in zip(sizes, site.origin, strict=True):
        flat = flat * n + index.clamp(min=0)
    on_weights = per_score.reshape(-1)[flat]
    _, wlabels = site.value.side(site.weights_left)
    return by_labels(
        on_weights, wlabels, site.value.out_labels, tuple(bench.replay.base(site.context).shape),
        tuple(i for i, x in enumerate(wlabels) if x in site.value.summed),
    )  # fmt: skip


def by_labels(
    values: Tensor,
    labels: tuple[int | None, ...],
    out_labels: tuple[int | None, ...],
    out_shape: tuple[int, ...],
    drop: tuple[int, ...],
) -> Tensor:
    """Spread `values` from an operand's axes to the result's axes, by label (`drop`: take index 0)."""
    taken = values
    keep = list(range(values.dim()))
    for axis in sorted(drop, reverse=True):
        taken = taken.select(axis, 0)
        keep.remove(axis)
    kept_labels = [labels[a] for a in keep]
    order = [kept_labels.index(x) for x in out_labels if x is not None and x in kept_labels]
    rest = [i for i in range(len(kept_labels)) if i not in order]
    taken = taken.permute(*order, *rest)
    for _ in rest:
        taken = taken.select(-1, 0)
    view: list[int] = []
    position = 0
    for x in out_labels:
        if x is not None and x in kept_labels:
            view.append(taken.shape[position])
            position += 1
        else:
            view.append(1)
    return taken.reshape(view).expand(out_shape)


def _mixes(bench: Bench, moves: list[dict[Node, Tensor]], node: Node) -> bool:
    """Return whether one element of `node` moves with the first head and with the last."""
    if not is_tensor(bench.recording, node):
        return True  # an opaque learned layer behind the context
    if len(moves) < 2:
        return True
    base = bench.replay.base(node)
    changed = []
    for move in moves:
        (moved,) = bench.replay.run([node], move)
        changed.append((moved - base).abs() > 1e-12 * base.abs().clamp(min=1.0))
    return bool((changed[0] & changed[1]).any())


@unless_data_decides
def measure_output(
    bench: Bench, site: Site, dims: Fact[Dims], path: OutputPath, declared: tuple[str, ...]
) -> Fact[OutputProjection]:
    """Return whether a learned map mixes the heads."""
    if site.kind is Kind.POOLING:
        return NotApplicable("pooling needs no output projection")
    if site.kind in (Kind.LINEAR, Kind.CHANNEL) or isinstance(dims, NotApplicable):
        return NotApplicable(f"{site.kind} attention is not multi-head attention as defined")
    if isinstance(dims, Unknown):
        return dims
    if path.map is None and sum(1 for s in bench.sites if s.scores is site.scores) > 1:
        return NotApplicable(
            "two sequences share one score matrix: co-attention returns its contexts"
        )
    if dims.value.num_heads == 1 and path.map is None:
        return NotApplicable("one head needs no map that mixes heads")
    if (
        any(s.kind == "input" for s in (site.q.sources if site.q else ()))
        and not bench.recording.parameters
    ):
        return NotApplicable("a function without weights leaves the projections to its caller")
    if path.map is None and asks_as_one(bench, site.all[0]):
        return NotApplicable("one query made of all positions asks them: pooling needs no map")
    if path.map is None and _ready_made(site):
        return NotApplicable(
            "q, k and v come ready-made: their projections, and W_O, are the caller's"
        )
    if path.map is None and _by_map_convolutions(site) and _goes_on(bench, path):
        return NotApplicable(
            "q, k and v are convolutions of a feature map: the block's next one mixes the heads"
        )
    if path.map is None and path.stopped_by == "another contraction":
        return NotApplicable("another contraction reads the context: the heads are not merged yet")
    names = tuple(n for s in path.dead for n in s.parameters) + tuple(
        d for d in declared if all(d not in s.parameters for s in path.dead)
    )
    if path.map is None:
        same = path.stop is not None and forward_of(path.stop) == forward_of(path.exit)
        where = span_in_forward(path.stop) if same else return_after(path.exit)
        return Known(
            OutputProjection(False, declared=names, span=where, mixes=False),
            f"between the context and {path.stopped_by} no weight is applied",
        )
    return Known(
        OutputProjection(
            True,
            name=path.map.parameters[0] if path.map.parameters else "",
            mixes=path.mixes,
            span=span_of(path.map.call),
            width=path.map.out_width,
        ),
        "one output element moves with the first head and with the last",
    )


def _goes_on(bench: Bench, path: OutputPath) -> bool:
    """Return whether the context is returned as it is, or learned maps follow the residual."""
    if path.stopped_by != "the residual" or path.stop is None:
        return True
    behind = bench.dependence.descendants([path.stop])
    return any(bench.finder.sources.learned_map(n) is not None for n in behind)


def _by_map_convolutions(site: Site) -> bool:
    """Return whether q, k and v are made by convolutions over two axes or more."""
    sources = [o.source for o in (site.q, site.k, site.v) if o is not None]
    return all(s is not None and op(s.call) in ("conv2d", "conv3d") for s in sources)


def _ready_made(site: Site) -> bool:
    """Return whether q, k and v are arguments themselves, three slices of one or three tensors."""
    operands_ = [o for m in site.all for o in (m.q, m.k, m.v)]
    return all(
        o is not None and o.source is not None and o.source.kind == "input" for o in operands_
    )
