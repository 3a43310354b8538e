"""Roles: which projection q, k and v come through, what shares a weight, what lies idle."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.fx import Node

from mha_lint.facts.arguments import misfed_operands
from mha_lint.facts.bench import Bench
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.exchange import exchanged
from mha_lint.facts.heads import shared_head_axes
from mha_lint.facts.output import OutputPath
from mha_lint.facts.places import span_of
from mha_lint.facts.sharing import channels_read, one_tensor, serves_all_heads, shared_pairs
from mha_lint.facts.stacking import LINEAR_OPS, chained_operands, map_after, saves_weights
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import (
    Fact,
    Kind,
    Known,
    NotApplicable,
    Projection,
    Roles,
    Stacked,
    Unknown,
)
from mha_lint.model.source import Span
from mha_lint.sites.dependence import Dependence, is_tensor, op, operands, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source
from mha_lint.sites.trace import distinct


def projection(bench: Bench, source: Source, operand: Operand | None = None) -> Projection:
    """Return `source` in plain data."""
    channels: tuple[int, ...] | None = None
    if operand is not None and operand.trace is not None and len(source.channel_axes) == 1:
        axis = source.channel_axes[0]
        if operand.trace.clean[axis]:
            used = distinct(operand.trace.index[axis][operand.trace.responds])
            channels = tuple(used) if len(used) < source.out_width else None
    reads = source.reads if source.reads is not None else source.node
    name = source.parameters[0] if source.kind == "projection" and source.parameters else ""
    return Projection(
        name=name,
        source=tuple(sorted(bench.dependence.inputs_of(reads))),
        span=span_of(source.call),
        in_width=source.in_width,
        out_width=source.out_width,
        input=str(reads),
        channels=channels,
        convolution=op(source.call).startswith("conv"),
        declared=_made_once(bench, name) if name else None,
    )


def _made_once(bench: Bench, name: str) -> Span | None:
    """Return where a list holds one layer many times (``[layer] * n``), None for lists of many.

    The outermost such list on the way to the parameter `name` is meant.
    """
    module: Any = bench.recording.module
    parts = name.split(".")
    for depth, part in enumerate(parts[:-1]):
        module = getattr(module, "_modules", {}).get(part)
        children = list(getattr(module, "_modules", {}).values())
        if len(children) > 1 and all(c is children[0] for c in children):
            return declared_at(bench.recording.module, ".".join(parts[: depth + 1]))
    return None


def _projections(bench: Bench, operand: Operand | None) -> tuple[Projection, ...]:
    if operand is None or operand.source is None or operand.source.kind != "projection":
        return ()
    return (projection(bench, operand.source, operand),)


@unless_data_decides
def measure_roles(bench: Bench, site: Site) -> Fact[Roles]:
    """Return where q, k and v of `site` come from."""
    if site.score is None or site.q is None or site.k is None:
        return NotApplicable("the scores are no product of queries and keys")
    if site.kind in (Kind.LINEAR, Kind.CHANNEL):
        return NotApplicable(f"{site.kind} attention")
    if any(o.source is None for o in (site.q, site.k, site.v)):
        return Unknown("the source of an operand is not known")
    members = site.all
    per = {name: [_projections(bench, getattr(m, name)) for m in members] for name in "qkv"}
    first = {name: p[0] for name, p in per.items()}
    same = shared_pairs(bench, site)
    unused = (*_unused(bench, site), *_unused_channels(bench, site))
    if not unused and serves_all_heads(bench, site):
        same = tuple(pair for pair in same if pair != "kv")
    value_is = "v"
    if one_tensor(bench, site.v, site.k):
        value_is = "k"
    elif one_tensor(bench, site.v, site.q):
        value_is = "q"
    heads_share = tuple(name for name in "qkv" if _heads_share(bench, site, name))
    if site.kind is Kind.POOLING:
        # Pooling may compare and sum one and the same states.
        same, heads_share = (same if unused else ()), ()
    return Known(
        Roles(
            q=first["q"], k=first["k"], v=first["v"], same=same, unused=unused,
            heads_share=heads_share, value_is=value_is, misfed=misfed_operands(bench, site),
            exchanged=exchanged(bench, site) if value_is == "v" and not same else "",
            chained=chained_operands(bench, site),
        ),
        "; ".join(f"{n} through {first[n][0].name}" for n in "qkv" if first[n]),
    )  # fmt: skip


def _heads_share(bench: Bench, site: Site, name: str) -> bool:
    if len(site.members) > 1:
        sources = [getattr(m, name).source for m in site.members]
        if any(s is None or s.kind != "projection" for s in sources):
            return False
        distinct_calls = {s.call for s in sources}
        one_weight = len({s.parameters for s in sources}) == 1
        one_input = len({s.reads for s in sources}) == 1
        if not (one_weight and one_input and len(distinct_calls) > 1):
            return False
        return len({channels_read(getattr(m, name)) for m in site.members}) == 1
    operand: Operand | None = getattr(site, name)
    if operand is None or operand.source is None:
        return False
    return bool(shared_head_axes(bench, operand))


def _unused(bench: Bench, site: Site) -> tuple[str, ...]:
    """Return declared matrices, shaped like W_Q, W_K or W_V and beside them, that reach no output."""
    module = bench.recording.module
    if module is None:
        return ()
    shapes: set[tuple[int, ...]] = set()
    owners: set[str] = set()
    idle = _idle_matrices(bench.dependence, module)
    if not idle:
        return ()
    layers = _layers(module)
    for member in site.all:
        for operand in (member.q, member.k, member.v):
            if operand is None or operand.source is None or operand.source.kind != "projection":
                continue
            for name in operand.source.parameters:
                node = bench.recording.parameters.get(name)
                if node is not None:
                    sizes = shape(bench.recording, node)
                    shapes |= {sizes, sizes[::-1]}  # x @ W beside x @ W.T
                    owners.add(_owner(name, layers))
    found = [
        name
        for name, sizes in idle.items()
        if sizes in shapes and any(_owner(name, layers).startswith(o) for o in owners)
    ]
    return tuple(name for name in found if not _cut_to_nothing(bench, name))


_IDLE: WeakKeyDictionary[Dependence, dict[str, tuple[int, ...]]] = WeakKeyDictionary()


def _idle_matrices(dependence: Dependence, module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the parameters that reach no output, by any name."""
    if dependence not in _IDLE:
        live = dependence.live_parameters
        used = {id(p) for n, p in module.named_parameters(remove_duplicate=False) if n in live}
        _IDLE[dependence] = {
            name: tuple(parameter.shape)
            for name, parameter in module.named_parameters()
            if name not in live and id(parameter) not in used
        }
    return _IDLE[dependence]


def _cut_to_nothing(bench: Bench, name: str) -> bool:
    """Return whether the call is too short for what the parameter makes: no element of it is left.

    Whole blocks of positions are summed up, say, and there are fewer positions than one block has.
    """
    node = bench.recording.parameters.get(name)
    if node is None:
        return False
    made = bench.dependence.descendants([node])
    return any(is_tensor(bench.recording, n) and 0 in shape(bench.recording, n) for n in made)


def _unused_channels(bench: Bench, site: Site) -> tuple[str, ...]:
    """Return the part of a fused projection that no operand of `site` reads."""
    found: list[str] = []
    operands_ = [
        o for m in site.all for o in (m.q, m.k, m.v) if o is not None and o.source is not None
    ]
    for node in dict.fromkeys(o.source.node for o in operands_ if o.source is not None):
        readers = [o for o in operands_ if o.source is not None and o.source.node is node]
        source = readers[0].source
        assert source is not None
        if source.kind != "projection" or len(source.channel_axes) != 1 or len(readers) < 2:
            continue
        axis = source.channel_axes[0]
        traces = [o.trace for o in readers if o.trace is not None]
        if not all(t.clean[axis] for t in traces):
            continue
        used = {c for t in traces for c in distinct(t.index[axis][t.responds])}
        rest = source.out_width - len(used)
        width = len(distinct(traces[-1].index[axis][traces[-1].responds]))
        if rest >= width and not _read_elsewhere(bench, node, site):
            found.append(f"{rest} of the {source.out_width} channels of {_parameter(source)}")
    return tuple(found)


def _read_elsewhere(bench: Bench, node: Node, site: Site) -> bool:
    """Return whether something besides this site's attention reads `node` (a gate, another branch)."""
    contexts = {m.context for m in site.all}
    scores = {m.scores for m in site.all}
    below = bench.dependence.descendants([node])
    last = [n for n in bench.recording.outputs if n in below]
    front, seen = [node], set()
    while front:
        one = front.pop()
        if one in seen or one in contexts or one in scores:
            continue
        seen.add(one)
        front += [u for u in bench.dependence.users(one) if u in bench.dependence.live]
    return any(n in seen for n in last)


def _layers(module: nn.Module) -> set[str]:
    """Return the paths of modules that are one matrix, and a bias perhaps."""
    found: set[str] = set()
    for path, one in module.named_modules():
        ranks = [p.dim() for p in one.parameters(recurse=False)]
        if path and not any(one.children()) and sum(r > 1 for r in ranks) == 1 and len(ranks) < 3:
            found.add(path)
    return found


def _owner(name: str, layers: set[str]) -> str:
    """Return the module that holds the projection called `name`: "attn" for "attn.q_proj.weight"."""
    parts = name.split(".")
    if ".".join(parts[:-1]) in layers:
        parts = parts[:-1]
    while len(parts) > 1 and parts[-1].isdigit():
        parts = parts[:-1]
    return ".".join(parts[:-1])


@unless_data_decides
def measure_stacked(bench: Bench, site: Site, path: OutputPath) -> Fact[tuple[Stacked, ...]]:
    """Return projections that directly follow another linear map that nothing else reads."""
    if site.q is None or site.kind is Kind.POOLING:
        return NotApplicable("there are no query projections")
    found: list[Stacked] = []
    for name in "qkv":
        operand: Operand | None = getattr(site, name)
        source = operand.source if operand is not None else None
        if source is None or source.kind != "projection" or source.reads is None:
            continue
        before = [s for s in bench.finder.sources.of(source.reads) if s.kind != "learned"]
        if len(before) != 1 or before[0].kind != "projection":
            continue
        one = before[0]
        between = bench.dependence.between(one.call, source.reads)
        if any(op(n) not in LINEAR_OPS for n in between if is_tensor(bench.recording, n)):
            continue
        if any(
            op(n) in ("add", "cat", "stack") and not _only_parameters(bench, n, one)
            for n in between
        ):
            continue
        if one.out_width < min(one.in_width, source.out_width):
            continue  # a bottleneck: the product has a low rank on purpose
        if saves_weights(bench, one, source):
            continue
        readers = {
            u for n in (one.call, *between) for u in bench.dependence.users(n) if u not in between
        }
        calls = {
            o.source.call
            for m in site.all
            for o in (m.q, m.k, m.v)
            if o is not None and o.source is not None
        }
        if not readers or not readers <= calls:
            continue  # something else needs the first map's result
        found.append(Stacked(_parameter(one), _parameter(source), name, span_of(source.call)))
    if path.map is not None:
        after = map_after(bench, path.map.call)
        if after is not None and not saves_weights(bench, path.map, after):
            found.append(
                Stacked(_parameter(path.map), _parameter(after), "output", span_of(after.call))
            )
    return Known(tuple(found), "no operation but layout stands between the two maps")


def _only_parameters(bench: Bench, node: Node, source: Source) -> bool:
    others = [n for n in operands(node) if source.call not in bench.dependence.ancestors([n])]
    return all(bench.dependence.learned_only(n) for n in others)


def _parameter(source: Source) -> str:
    return source.parameters[0] if source.parameters else str(source.call)


@unless_data_decides
def measure_overwritten(bench: Bench, site: Site) -> Fact[tuple[str, ...]]:
    """Return the operands whose source in one head of a loop is another head's projection of it.

    A head that adds what the head before found to data of its own is a cascade, made on purpose.
    """
    if len(site.members) < 2:
        return NotApplicable("the heads are not computed in a loop")
    found: list[str] = []
    for name in "qkv":
        calls = [getattr(m, name).source for m in site.members if getattr(m, name) is not None]
        calls = [
            s for s in calls if s is not None and s.kind == "projection" and s.reads is not None
        ]
        nodes = (
            {s.call for s in calls} | {s.node for s in calls} | {m.context for m in site.members}
        )
        for source in calls:
            behind = bench.finder.sources.of(source.reads)
            earlier = {n for b in behind for n in (b.call, b.node)} & nodes
            if earlier and not _sums_own_data(bench, earlier, source.reads):
                found.append(name)
                break
    return Known(tuple(found), "the second head's projection reads the first head's")


def _sums_own_data(bench: Bench, earlier: set[Node], reads: Node) -> bool:
    """Return whether data that no earlier head made is added on the way to `reads`."""
    dep = bench.dependence
    made = dep.descendants(earlier)
    path = made & dep.ancestors([reads])
    return any(
        op(n) in ("add", "sub") and any(dep.on_data(o) and o not in made for o in operands(n))
        for n in path - earlier
    )
