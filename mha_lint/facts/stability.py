"""What large scores and narrow types do to the normaliser.

Each is seen by running the recorded operations in their own types: with scores so large that an
exponential of them leaves the range, as they were recorded, and with all scores of a query moved by
one number, which changes no softmax.
"""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Recording, Replay, random_parameters
from mha_lint.facts.bench import Bench, measuring_inputs
from mha_lint.facts.gain import score_gain
from mha_lint.facts.masks.levels import HIDES
from mha_lint.facts.order import NotArrangedError, Order, order_of, score_operands
from mha_lint.facts.places import span_of
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable
from mha_lint.model.numeric_facts import AddedToSum, Overflow, Stability
from mha_lint.sites.dependence import is_number, op, operands
from mha_lint.sites.site import Site

EXPONENTIALS = frozenset(["exp", "exp2", "expm1", "pow"])
BEYOND = 3.0
"""How many times the largest exponent that a type can hold the scores are made."""
TRIES = 4
"""So often are q and k scaled further: what is added to the scores is not, and may be most of them."""
ABOUT, MOST = 0.9, 4.0
"""How much of what is wanted will do, and by how much q and k are scaled further at a time."""
FAINT = 1e-6
"""Scores that are no larger are not scaled up: nothing reaches them."""
SHIFT = 5.0
"""By how much all scores of a query are moved; a softmax does not change by that."""
SAME = 1e-6
LEAST = 0.01
"""A smaller constant beside a sum that is at least one only keeps a division from failing."""

_NATIVE: WeakKeyDictionary[Replay, Replay] = WeakKeyDictionary()


@unless_data_decides
def measure_stability(bench: Bench, site: Site) -> Fact[Stability]:
    """Return how the normaliser of `site` takes large scores in its own type."""
    member = site.all[0]
    if site.kind is Kind.LINEAR or member.normaliser.element is None:
        return NotApplicable("nothing normalises the scores")
    product, gain = _early_overflow(bench, site)
    return Known(
        Stability(
            exponential=_bare_exponential(bench, member),
            product=product,
            gain=gain,
            added=_unshifted(bench, member),
            short=_shortfall(bench, member),
        ),
        "run in the recorded types, with larger scores, and with all scores of a query moved",
    )


def native(bench: Bench) -> Replay:
    """Return a replay of `bench` in the recorded types, on redrawn inputs and parameters."""
    if bench.replay not in _NATIVE:
        recording = bench.recording
        inputs = [
            new.to(old.dtype)
            for new, old in zip(measuring_inputs(recording, 0), recording.inputs, strict=True)
        ]
        parameters = {
            name: new.to(_dtype(recording, recording.parameters[name]))
            for name, new in random_parameters(recording, 0).items()
        }
        _NATIVE[bench.replay] = Replay(recording, inputs=inputs, parameters=parameters, dtype=None)
    return _NATIVE[bench.replay]


def _dtype(recording: Recording, node: Node) -> torch.dtype:
    found: torch.dtype = recording.values[node].dtype
    return found


# --- an exponential without its maximum ------------------------------------------------------------


def _bare_exponential(bench: Bench, member: Site) -> Overflow | None:
    """Make the scores larger than any exponential can take: finite ones must give finite weights."""
    found = member.normaliser
    if found.element == "softmax":
        return None
    path = bench.dependence.between(member.scores, found.weights)
    powers = [
        (node, read)
        for node in path
        if op(node) in EXPONENTIALS and is_number(bench.recording, node)
        for read in operands(node)[:1]
    ]
    if not powers:
        return None
    limit = torch.finfo(_dtype(bench.recording, powers[0][0])).max
    replay = native(bench)
    before = replay.base(found.weights)
    wanted = [found.weights, *(n for pair in powers for n in pair)]
    due = BEYOND * math.log(limit)
    nodes, by = _larger(bench, member, replay, powers[0][1], due)
    for _ in range(TRIES if nodes else 0):
        weights, *values = replay.run(wanted, {n: replay.base(n) * by for n in nodes})
        lost = before.isfinite() & ~weights.isfinite()
        for (node, _), made, exponent in zip(powers, values[::2], values[1::2], strict=True):
            reached = exponent[exponent.isfinite() & (exponent.abs() < HIDES)]
            beyond = (made == math.inf) & exponent.isfinite()
            if bool(lost.any()) and bool(beyond.any()) and reached.numel():
                return Overflow(
                    str(made.dtype).removeprefix("torch."),
                    limit,
                    float(reached.max()),
                    int(lost.sum()),
                    lost.numel(),
                    span_of(node),
                )
        size = _largest(values[1])
        if size < FAINT or size >= ABOUT * due:
            break
        by *= min((due / size) ** 0.5, MOST)
    return None


def _largest(exponent: Tensor) -> float:
    seen = exponent[exponent.isfinite() & (exponent.abs() < HIDES)]
    return float(seen.max()) if seen.numel() else 0.0


def _larger(
    bench: Bench, member: Site, replay: Replay, exponent: Node, due: float
) -> tuple[list[Node], float]:
    """Return what to scale and by how much, so that the largest `exponent` is about as large as `due`.

    What the operands are made from is scaled, so that cosines and normalised operands stay as they
    are, and so do scores behind a ``tanh``.
    """
    size = _largest(replay.base(exponent))
    if size < FAINT:
        return [], 1.0
    if member.q is not None and member.k is not None:
        ends = [[s.node for s in o.sources if not s.learned] for o in (member.q, member.k)]
    else:
        behind = bench.finder.sources.of(exponent)
        ends = [[s.node for s in behind if not s.learned]]
    ends = [nodes for nodes in ends if nodes]
    nodes = list(dict.fromkeys(n for one in ends for n in one if is_number(bench.recording, n)))
    return nodes, (due / size) ** (1 / max(len(ends), 1))


# --- a product that overflows before it is scaled --------------------------------------------------


def _early_overflow(bench: Bench, site: Site) -> tuple[Overflow | None, float]:
    """Return where the recorded raw scores overflow though the scaled ones would fit, and the gain."""
    for member in site.all:
        if member.score is None or member.q is None or member.k is None:
            continue
        scores = bench.recording.values[member.scores]
        if scores.dtype is not torch.float16 or bool(scores.isfinite().all()):
            continue
        found = _overflowed(bench, member, scores)
        if found is not None:
            return found
    return None, 1.0


def _overflowed(bench: Bench, member: Site, scores: Tensor) -> tuple[Overflow | None, float] | None:
    q, k = (x.double() for x in score_operands(member, _Recorded(bench.recording)))
    gain = score_gain(bench, member).value
    if gain is None or not bool(q.isfinite().all() and k.isfinite().all()):
        return None
    exact = (q @ k.transpose(-1, -2)).abs()
    limit = torch.finfo(scores.dtype).max
    spared = (exact > limit) & (exact * abs(gain) <= limit)
    if not bool(spared.any()):
        return None
    name = str(scores.dtype).removeprefix("torch.")
    at, reached = span_of(member.scores), float(exact[spared].max())
    return Overflow(name, limit, reached, int(spared.sum()), scores.numel(), at), gain


class _Recorded:
    """The values of the recorded call, in its own types."""

    def __init__(self, recording: Recording) -> None:
        self._values = recording.values

    def base(self, node: Node) -> Tensor:
        value: Tensor = self._values[node]
        return value


# --- a constant beside a shifted sum ---------------------------------------------------------------


def _unshifted(bench: Bench, member: Site) -> AddedToSum | None:
    """Return the constant that stands beside a sum of shifted exponentials, if there is one.

    With L the normaliser's input, less its maximum over the keys, a row of weights then sums to
    S / (c + S), S = sum exp(L), whatever all scores are moved by.
    """
    weights = bench.replay.base(member.weights)
    if member.score is None or not bool((weights >= 0).all()) or _shortfall(bench, member) < SAME:
        return None
    try:
        order = order_of(bench, member)
    except NotArrangedError:
        return None
    at = bench.replay.base(member.scores)
    push = SHIFT * float(at.abs().max().clamp(min=1))
    constants: list[Tensor] = []
    sums: list[Tensor] = []
    for by in (1.0, 6.0):
        here = _rows(bench, member, order, at * by)
        moved = _rows(bench, member, order, at * by + push)
        if here is None or moved is None:
            return None
        (sums_here, constant), (sums_moved, _) = here, moved
        if bool((sums_here - sums_moved).abs().max() > SAME):
            return None
        constants.append(constant)
        sums.append(sums_here)
    constant, found = torch.cat(constants), torch.cat(sums)
    middle = float(constant.median())
    if middle < LEAST or bool((constant - middle).abs().max() > SAME * max(1.0, middle)):
        return None
    return AddedToSum(
        middle,
        (float(found.min()), float(found.max())),
        span_of(member.normaliser.weights),
    )


def _shortfall(bench: Bench, member: Site) -> float:
    """Return by how much the weights of a query sum to less than 1, at most."""
    _, labels = member.value.side(member.weights_left)
    keys = [i for i, x in enumerate(labels) if x in member.value.summed]
    if not keys:
        return 0.0
    return 1.0 - float(bench.replay.base(member.weights).sum(keys).min())


def _rows(bench: Bench, member: Site, order: Order, scores: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return for each query the sum of its weights, and the constant that explains it."""
    wanted = [member.normaliser.logits, member.weights]
    logits, weights = bench.replay.run(wanted, {member.scores: scores})
    level = logits.reshape(-1)[order.logits]
    made = weights.reshape(-1)[order.weights]
    high = level.amax(-1, keepdim=True)
    usable = (high > -HIDES).squeeze(-1)
    if not bool(usable.any()) or bool(made.isnan().any()):
        return None
    powers = (level - high).exp()
    powers = torch.where(made > 0, powers, torch.zeros_like(powers))
    total, sums = powers.sum(-1)[usable], made.sum(-1)[usable]
    return sums, total * (1 - sums) / sums.clamp(min=1e-300)
