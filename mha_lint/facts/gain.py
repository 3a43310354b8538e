"""Gains, measured: by how much q, k, the scores, the weights and the values are multiplied."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.positions.pairs import given_tables, vector_sources
from mha_lint.sites.dependence import is_number, op, operands
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct, trace

CONSTANT = 1e-5
"""Relative spread up to which gains count as one number: float32 constants carry 6e-8, sums of
them over a head more."""
HALVES = (torch.float16, torch.bfloat16)
SMALL = 1e-6


@dataclass(frozen=True, slots=True)
class Gain:
    """``value`` per head where constant, else None with ``why``; ``normalised``: homogeneous of degree 0."""

    value: float | None
    per_head: tuple[float, ...] = ()
    normalised: bool = False
    why: str = ""


def operand_gain(bench: Bench, operand: Operand) -> Gain:
    """Return the gain from the projection's output to the operand.

    Every source is moved by random signs r: for any fixed layout, and for rotations, which keep
    norms, the response of a feature vector of d channels has the norm gain * sqrt(d).
    """
    nodes = [_normed(bench, s.node) for s in operand.sources if s.kind != "learned"]
    if operand.node in nodes or not nodes:
        return Gain(1.0)
    replay = bench.replay
    base = replay.base(operand.node)
    generator = torch.Generator().manual_seed(11)
    signs = {n: _signs(replay.base(n), generator) for n in nodes}
    (doubled,) = replay.run([operand.node], {n: 2 * replay.base(n) for n in nodes})
    scale = base.abs().max().clamp(min=1e-300)
    if (doubled - base).abs().max() < 1e-3 * scale:
        return Gain(None, normalised=True, why="normalised")
    moves: dict[Node, Tensor] = {n: replay.base(n) + SMALL * s for n, s in signs.items()}
    near = spread_of(bench, operand)
    found = _constant(_response(bench, operand, moves), "is not multiplied by one number", near)
    if found.value is None and len(moves) > 1:
        # Projections that are added up (of states and of positions) move one vector together.
        alone = [_response(bench, operand, {n: moved}) for n, moved in moves.items()]
        found = _constant(torch.cat(alone), found.why, near)
    if found.value is None and (given := given_tables(bench, operand)):
        # Cosines and sines that the caller passes: only as they are do they keep norms.
        vectors = {_normed(bench, s.node) for s in vector_sources(bench, operand)}
        held = {n: moved for n, moved in moves.items() if n in vectors}
        found = _constant(_response(bench, operand, held, given), found.why, near)
    return found


def spread_of(bench: Bench, operand: Operand) -> float:
    """Return the spread up to which gains are one number: a table in a half type has few digits."""
    sources = [s.node for s in operand.sources if s.kind != "learned"]
    between = {n for s in sources for n in bench.dependence.between(s, operand.node)}
    types = {n.meta.get("dtype") for node in between for n in (node, *operands(node))}
    return max((2 * torch.finfo(t).eps for t in types if t in HALVES), default=CONSTANT)


def _normed(bench: Bench, node: Node) -> Node:
    """Return the batch norm that alone reads the projection `node`: it is one map with it."""
    while True:
        users = [u for u in bench.dependence.users(node) if u in bench.dependence.live]
        if len(users) != 1 or op(users[0]) != "batch_norm":
            return node
        node = users[0]


def _response(
    bench: Bench,
    operand: Operand,
    moves: dict[Node, Tensor],
    given: dict[Node, Tensor] | None = None,
) -> Tensor:
    """Return the size of each feature vector's response to `moves`, the silent ones left out.

    `given`: values of inputs that the way leads past.
    """
    (base,) = bench.replay.run([operand.node], given or {})
    (moved,) = bench.replay.run([operand.node], {**(given or {}), **moves})
    response = (moved - base) / SMALL
    axes = operand.features
    energy = response.square().sum(axes) if axes else response.square()
    size = 1
    for axis in axes:
        size *= base.shape[axis]
    gains: Tensor = (energy / size).sqrt().flatten()
    return gains[torch.isfinite(gains) & (gains > 1e-9)]


def _signs(like: Tensor, generator: torch.Generator) -> Tensor:
    return (torch.rand(like.shape, generator=generator) < 0.5).to(like.dtype) * 2 - 1


def _constant(gains: Tensor, why: str, near: float = CONSTANT) -> Gain:
    if gains.numel() == 0:
        return Gain(None, why="has no influence")
    middle = float(gains.double().sort().values[gains.numel() // 2])
    spread = float((gains - middle).abs().max())
    if spread > max(near, 1e-4 if middle > 1e3 else 0) * abs(middle):
        return Gain(None, why=f"{why} ({float(gains.min()):.3g} to {float(gains.max()):.3g})")
    return Gain(middle)


def contraction_gain(bench: Bench, site: Site) -> float | None:
    """Return the factor inside the score contraction itself (baddbmm's alpha), else 1."""
    score = site.score
    if score is None or op(score.node) not in ("baddbmm", "addmm", "addmv"):
        return 1.0
    replay = bench.replay
    left, right = replay.base(score.left), replay.base(score.right)
    (doubled,) = replay.run([score.node], {score.left: 2 * left})
    product = torch.matmul(left, right)
    ratio = ((doubled - replay.base(score.node)) / product).flatten()
    gain = _constant(ratio[torch.isfinite(ratio)], "the product")
    return gain.value


def score_gain(bench: Bench, site: Site) -> Gain:
    """Return the gain from the scores to the normaliser's input, head by head.

    The scores are replaced by 0 and by a small random tensor, so that soft-capping acts where it
    is the identity and biases and masks drop out.
    """
    traced = site.to_logits
    if traced is None:
        return Gain(None, why="there is no product of q and k")
    if site.normaliser.logits is site.scores:
        return Gain(1.0)
    if not traced.all_clean:
        return Gain(None, why="the heads are mixed before the softmax")
    path = bench.dependence.between(site.scores, site.normaliser.logits)
    if any(op(n) == "dropout" and n.kwargs.get("training") and n.kwargs.get("p") for n in path):
        return Gain(None, why="dropout is active on the scores, and scales them at random")
    replay = bench.replay
    at = replay.base(site.scores)
    generator = torch.Generator().manual_seed(13)
    noise = torch.rand(at.shape, generator=generator, dtype=at.dtype) + 0.5
    (zero,) = replay.run([site.normaliser.logits], {site.scores: torch.zeros_like(at)})
    (small,) = replay.run([site.normaliser.logits], {site.scores: SMALL * noise})
    flat = traced.flat()
    known = flat >= 0
    gains = (small - zero) / SMALL / noise.reshape(-1)[flat.clamp(min=0)]
    ok = known & torch.isfinite(gains) & (zero.abs() < 1e6) & (gains.abs() > 1e-12)
    if not bool(ok.any()):
        return Gain(None, why="the scores have no influence on the softmax")
    heads: list[float] = []
    groups = _group_ids(site, flat, at)
    for group in distinct(groups[ok]):
        one = _constant(
            gains[ok & (groups == group)],
            "the scores are multiplied by a factor that depends on the position",
        )
        if one.value is None:
            return one
        heads.append(one.value)
    spread = max(heads) - min(heads)
    if spread > CONSTANT * max(abs(h) for h in heads):
        return Gain(heads[0], _once(heads))
    return Gain(heads[0])


def _once(heads: list[float]) -> tuple[float, ...]:
    """Return one period of gains that repeat from sample to sample."""
    for period in range(1, len(heads)):
        if len(heads) % period == 0 and all(
            math.isclose(h, heads[i % period], rel_tol=CONSTANT) for i, h in enumerate(heads)
        ):
            return tuple(heads[:period])
    return tuple(heads)


def _group_ids(site: Site, flat: Tensor, at: Tensor) -> Tensor:
    ids = torch.zeros_like(flat)
    rest = flat.clamp(min=0)
    sizes = list(at.shape)
    for axis in range(at.dim()):
        below = 1
        for n in sizes[axis + 1 :]:
            below *= n
        index = rest // below % sizes[axis]
        if axis in site.group_axes:
            ids = ids * sizes[axis] + index
    return ids


def weight_gain(bench: Bench, site: Site) -> float:
    """Return the factor from the normalised weights to those that meet V (1 after renormalising)."""
    if site.normaliser.later or site.normaliser.element is None:
        return 1.0
    gain = site.to_weights.gain
    if gain is None:
        return 1.0
    known = gain[site.to_weights.responds]
    found = _constant(known[known.abs() > 1e-12], "the weights")
    return found.value if found.value is not None else 1.0


def path_gain(bench: Bench, start: Node, end: Node) -> float:
    """Return the constant factor between two nodes joined by layout changes and factors, else 1."""
    if start is end:
        return 1.0
    traced = trace(bench.replay, start, end)
    if traced.gain is None:
        return 1.0
    known = traced.gain[traced.responds]
    found = _constant(known[known.abs() > 1e-12], "the values")
    return found.value if found.value is not None else 1.0


def factor_nodes(bench: Bench, start: Node, end: Node) -> list[tuple[Node, float | None, bool]]:
    """Return the nodes between `start` and `end` that multiply by something that is no data.

    Each comes with its factor, None where that is no single number, and whether a Parameter sets it.
    """
    found: list[tuple[Node, float | None, bool]] = []
    for node in bench.dependence.between(start, end):
        if op(node) not in (
            "mul",
            "div",
            "softmax_scale",
            "true_divide",
            "multiply",
            "divide",
            "addcdiv",
            "lerp",
        ):
            continue
        moving = [
            n for n in operands(node) if n is start or start in bench.dependence.ancestors([n])
        ]
        if len(moving) != 1:
            continue
        others = [n for n in operands(node) if n is not moving[0]]
        if not all(is_number(bench.recording, n) for n in (node, moving[0])):
            continue  # complex rotations keep the norm
        if any(bench.dependence.on_data(n) for n in others):
            continue
        learned = any(bench.dependence.learned_only(n) for n in others)
        before, after = bench.replay.base(moving[0]), bench.replay.base(node)
        if before.numel() != after.numel():
            continue
        ratio = (
            (after / before.reshape(after.shape)).flatten()
            if before.shape != after.shape
            else (after / before).flatten()
        )
        ratio = ratio[torch.isfinite(ratio) & (ratio.abs() > 1e-12)]
        gain = _constant(ratio, "") if ratio.numel() else Gain(None)
        if gain.value is None or abs(gain.value - 1) > CONSTANT:
            found.append((node, gain.value, learned))
    return found
