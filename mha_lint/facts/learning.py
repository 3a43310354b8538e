"""Which projections cannot learn: no gradient reaches them, or they begin where there is none.

Gradients are those of the real module in training mode, with parameters drawn at random: a gate or
a W_O that starts at zero would hold all others back, and is a known design.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.fx import Node

from mha_lint.capture import random_parameters
from mha_lint.facts.assigned import fills, freezes, set_at
from mha_lint.facts.bench import Bench, measuring_inputs
from mha_lint.facts.gradients import Cut, Drawn, Gradients, NoGradientError, cuts, gradients
from mha_lint.facts.output import output_path
from mha_lint.model.facts import Fact, Known, NotApplicable, Unknown
from mha_lint.model.numeric_facts import Dead, Detached, Learning
from mha_lint.model.source import Span
from mha_lint.sites.finder import DATA_ERRORS
from mha_lint.sites.site import Site
from mha_lint.sites.source import CONVOLUTIONS, Source
from mha_lint.sites.trace import Trace, distinct
from mha_lint.targets.subject import Subject

FEW = 4
"""Slices of a raw parameter that are moved one by one: q, k and v are three."""
MOST = 100_000_000
"""Parameters up to which a backward pass is run."""
MOVED = 1e-5
"""Relative: outputs that move less with the result of a projection do not depend on it."""
NOTHING = 1e-7
"""Relative to the largest: a smaller gradient is rounding."""
PAIRS = (("q", "k"), ("v", "o"))
"""Operands that multiply each other: if both are zero, neither gets a gradient."""


def measure_learning(subject: Subject, bench: Bench) -> Fact[Learning]:
    """Return the projections that no gradient reaches, and those that begin as one number."""
    if not isinstance(subject.module, nn.Module) or not bench.sites:
        return NotApplicable("there is nothing that learns")
    if sum(p.numel() for p in subject.module.parameters()) > MOST:
        return Unknown(f"a backward pass over more than {MOST:,} parameters was not tried")
    sides = [_sides(bench, site) for site in bench.sites]
    if not any(side.weights for group in sides for side in group):
        return NotApplicable("no projection has parameters")
    drawn = Drawn(
        tuple(measuring_inputs(bench.recording, 0)), random_parameters(bench.recording, 0)
    )
    try:
        found = gradients(subject, drawn)
        detached = [x for group in sides for x in _detached(subject, bench, group, found, drawn)]
        dead = [x for group in sides for x in _dead(subject, bench, group, drawn)]
    except NoGradientError as error:
        return NotApplicable(_first_line(error))
    except (Exception, SystemExit) as error:
        return Unknown(
            f"the call fails in training mode: {type(error).__name__}: {_first_line(error)}"
        )
    return Known(
        Learning(tuple(detached), tuple(dead)),
        "one call in training mode with its backward pass, parameters drawn at random",
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


@dataclass(frozen=True, slots=True)
class _Weight:
    """A parameter of a projection; ``rows`` of its axis ``dim`` are used (None: all of it)."""

    name: str
    value: Tensor
    dim: int = 0
    rows: tuple[int, ...] | None = None

    def part(self, whole: Tensor) -> Tensor:
        """Return the part of `whole`, shaped like the parameter, that the projection uses."""
        if self.rows is None:
            return whole
        return whole.index_select(self.dim, torch.tensor(self.rows, device=whole.device))


@dataclass(frozen=True, slots=True)
class _Side:
    """One of q, k, v and o of a site: its weights, and all parameters that reach it."""

    operand: str
    weights: tuple[_Weight, ...]
    above: frozenset[str]
    moves: tuple[tuple[Node, tuple[int, ...] | None, int], ...]
    """Results of its projections: node, channels that are its own, and their axis."""


def _parts_of_shared(bench: Bench, member: Site, name: str, weight: _Weight) -> _Weight:
    """Return the slices of a raw parameter, as (3, h, C, D), that one of q, k and v is made from."""
    at = bench.recording.parameters[weight.name]
    operand = getattr(member, name)
    if weight.rows is not None or weight.value.dim() < 3:
        return weight
    base, there = bench.replay.base(at), bench.replay.base(operand.node)
    for axis, size in enumerate(base.shape):
        if not 1 < size <= FEW:
            continue
        used = []
        for index in range(size):
            moved_in = base.clone()
            moved_in.select(axis, index).add_(1.0)
            try:
                (moved,) = bench.replay.run([operand.node], {at: moved_in})
            except DATA_ERRORS:
                return weight
            if not torch.equal(moved, there):
                used.append(index)
        if 0 < len(used) < size:
            return _Weight(weight.name, weight.value, axis, tuple(used))
    return weight


def _sides(bench: Bench, site: Site) -> list[_Side]:
    found: dict[str, list[_Side]] = {}
    for member in site.all:
        for name in "qkv":
            operand = getattr(member, name)
            if operand is None or operand.learned:
                continue
            maps = [s for s in operand.sources if s.kind == "projection"]
            traced = operand.trace if len(maps) == 1 and operand.source is maps[0] else None
            side = _side(bench, name, maps, traced, operand.node)
            parts = tuple(_parts_of_shared(bench, member, name, w) for w in side.weights)
            found.setdefault(name, []).append(dataclasses.replace(side, weights=parts))
    path = output_path(bench, site)
    if path.map is not None:
        found["o"] = [_side(bench, "o", [path.map], None, path.map.node)]
    return [_joined(name, sides) for name, sides in found.items()]


def _joined(name: str, sides: list[_Side]) -> _Side:
    """Join the operands of the single heads of a loop."""
    weights = {w.name: w for side in sides for w in side.weights}
    if len(sides) > 1 and len(weights) < len(sides):
        # One weight for all heads, each with rows of its own: taken as a whole.
        weights = {w.name: _Weight(w.name, w.value) for w in weights.values()}
    above = frozenset().union(*(side.above for side in sides))
    return _Side(name, tuple(weights.values()), above, tuple(m for s in sides for m in s.moves))


def _side(bench: Bench, name: str, maps: list[Source], traced: Trace | None, node: Node) -> _Side:
    weights: list[_Weight] = []
    moves: list[tuple[Node, tuple[int, ...] | None, int]] = []
    for source in maps:
        rows = _channels(source, traced)
        moves.append((source.node, rows, source.channel_axes[0] if source.channel_axes else 0))
        for parameter in source.parameters:
            at = bench.recording.parameters.get(parameter)
            if at is None:
                continue
            value = bench.recording.values[at].detach()
            if value.dim() < 2 or value.is_meta or not value.is_floating_point():
                continue
            dims = [d for d in (0, 1) if rows and value.shape[d] == source.out_width]
            used = _Weight(parameter, value, dims[0], rows) if dims else _Weight(parameter, value)
            if not _is_filter(source, value):
                weights.append(used)
    return _Side(name, tuple(weights), bench.dependence.parameters(node), tuple(moves))


def _is_filter(source: Source, value: Tensor) -> bool:
    """Return whether `value` is a convolution over several positions, which may well be a mean."""
    return source.call.meta.get("op") in CONVOLUTIONS and value.shape[2:].numel() > 1


def _channels(source: Source, traced: Trace | None) -> tuple[int, ...] | None:
    """Return the channels of a fused projection that one operand uses, None for all."""
    if traced is None or len(source.channel_axes) != 1 or not traced.clean[source.channel_axes[0]]:
        return None
    index = traced.index[source.channel_axes[0]]
    known = tuple(i for i in distinct(index[traced.responds]) if i >= 0)
    return known if known and len(known) < source.out_width else None


# --- cut off -----------------------------------------------------------------------------------------


def _detached(
    subject: Subject,
    bench: Bench,
    sides: list[_Side],
    found: Gradients,
    drawn: Drawn,
) -> Iterator[Detached]:
    """Yield the operands whose parameters get nothing, while those of another operand do."""
    alive = [side for side in sides if any(_gets(w, found) for w in side.weights)]
    idle = [s for s in sides if s.weights and s not in alive and not _fed(s, found)]
    plain = [
        side
        for side in alive
        if all(w.name in found.trainable for w in side.weights)
    ]  # fmt: skip
    where: list[Cut] | None = None
    learning = tuple(s.operand for s in alive)
    told: dict[tuple[str, Span | None], Detached] = {}
    for side in idle:
        names = tuple(w.name for w in side.weights)
        frozen = not any(name in found.trainable for name in names)
        if not (plain if frozen else alive):
            continue  # all are frozen, or cut off together: a feature extractor
        influence = _influence(bench, side)
        if influence <= MOVED:
            continue
        span = set_at(bench.recording.module, names[0], freezes)
        if not frozen:
            where = where if where is not None else cuts(subject, drawn)
            beside = {w.name for s in alive for w in s.weights}
            span = _cut_at(where, set(names), beside) or span
        how = "frozen" if frozen else "cut"
        other = told.get((how, span))
        operands = (*(other.operands if other else ()), side.operand)
        names = tuple(dict.fromkeys((*(other.names if other else ()), *names)))
        influence = max(influence, other.influence if other else 0.0)
        told[how, span] = Detached(operands, names, how, influence, span, learning)
    yield from told.values()


def _gets(weight: _Weight, found: Gradients) -> bool:
    gradient = found.of(weight.name)
    return gradient is not None and bool(weight.part(gradient).any())


def _fed(side: _Side, found: Gradients) -> bool:
    """Return whether something else learns in the place of the side's frozen weights, as LoRA does."""
    frozen = {w.name for w in side.weights if w.name not in found.trainable}
    if not frozen:
        return False
    prefixes = {name.rpartition(".")[0] for name in frozen}
    beside = [
        found.of(name)
        for name in side.above - frozen
        if name.rpartition(".")[0] in prefixes or len(side.moves) > 1
    ]
    return any(g is not None and g.dim() > 1 and bool(g.any()) for g in beside)


def _influence(bench: Bench, side: _Side) -> float:
    """Return by how much the outputs move, relative to their size, with the side's projections."""
    generator = torch.Generator().manual_seed(19)
    moved_in: dict[Node, Tensor] = {}
    for node, channels, axis in side.moves:
        at = bench.replay.base(node)
        push = torch.randn(at.shape, generator=generator, dtype=torch.float64) * 0.1
        if channels is not None:
            own = torch.zeros(at.shape[axis], dtype=torch.float64)
            own[list(channels)] = 1
            push = push * own.view([-1 if a == axis else 1 for a in range(at.dim())])
        moved_in[node] = at + push.to(at)
    outputs = [
        n
        for n in dict.fromkeys(bench.recording.outputs)
        if bench.recording.values[n].is_floating_point()
    ]
    before = [bench.replay.base(n) for n in outputs]
    try:
        after = bench.replay.run(outputs, moved_in)
    except DATA_ERRORS:
        return 0.0
    found = [
        float((one - two).abs().nan_to_num().max() / one.abs().nan_to_num(posinf=0).max().clamp(min=1e-9))
        for one, two in zip(before, after, strict=True)
        if one.shape == two.shape and one.numel()
    ]  # fmt: skip
    return max(found, default=0.0)


def _cut_at(where: Iterable[Cut], names: set[str], beside: set[str]) -> Span | None:
    """Return where the gradient of `names` ends, and that of nothing that learns `beside` them."""
    own = [c for c in where if c.parameters & names]
    alone = [c for c in own if not c.parameters & (beside - names)]
    return next((c.span for c in (*alone, *own) if c.span is not None), None)


# --- one number throughout ---------------------------------------------------------------------------


def _dead(subject: Subject, bench: Bench, sides: list[_Side], drawn: Drawn) -> Iterator[Dead]:
    """Yield the weights that begin as one number, and cannot leave it."""
    constant = {
        side.operand: [w for w in side.weights if _constant(w) is not None] for side in sides
    }
    for operands in PAIRS:
        zeros = [(o, w) for o in operands for w in constant.get(o, ()) if _constant(w) == 0]
        if zeros:
            yield from _saddle(subject, bench, sides, zeros, drawn)
    others = [(o, w) for o, found in constant.items() for w in found if _constant(w) != 0]
    for operand, weight in others[:1]:
        value = _constant(weight) or 0.0
        together = tuple(dict.fromkeys(o for o, _ in others))
        yield Dead(
            operand,
            weight.name,
            value,
            1.0,
            together,
            set_at(bench.recording.module, weight.name, fills),
        )


def _constant(weight: _Weight) -> float | None:
    """Return the one number that a matrix is made of."""
    part = weight.part(weight.value)
    if len([size for size in part.shape if size > 1]) < 2:
        return None
    first = part.flatten()[0]
    return float(first) if bool((part == first).all()) else None


def _saddle(
    subject: Subject,
    bench: Bench,
    sides: list[_Side],
    zeros: list[tuple[str, _Weight]],
    drawn: Drawn,
) -> Iterator[Dead]:
    """Yield the first of `zeros` if none of them gets a gradient, whatever all else is."""
    names = {operand for operand, _ in zeros}
    above = frozenset().union(*(side.above for side in sides if side.operand in names))
    layers = {w.name.rpartition(".")[0] for _, w in zeros}
    kept = {
        name
        for name in above
        if name.rpartition(".")[0] in layers or not bool(_own(bench, name).any())
    }
    others = {n: p for n, p in drawn.parameters.items() if n not in kept}
    found = gradients(subject, Drawn(drawn.inputs, others))
    parts = [(w, found.of(w.name)) for _, w in zeros]
    sizes = [0.0 if g is None else float(w.part(g).abs().max()) for w, g in parts]
    if max(sizes) > NOTHING * max(found.largest, 1e-30):
        return
    operand, weight = zeros[0]
    together = tuple(dict.fromkeys(o for o, _ in zeros))
    yield Dead(
        operand, weight.name, 0.0, 0.0, together, set_at(bench.recording.module, weight.name, fills)
    )


def _own(bench: Bench, name: str) -> Tensor:
    value: Tensor = bench.recording.values[bench.recording.parameters[name]]
    return value.detach()
