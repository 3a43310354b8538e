"""At which stage of attention a cached step departs from the whole, and which line makes it so.

The step and the whole are recorded, and the same query's operands are compared: a step must find the
same keys, in the same order, the same query, the same bias and mask.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Recording, Replay, record
from mha_lint.facts.bench import Bench
from mha_lint.facts.caching.calls import Caller
from mha_lint.facts.caching.lines import (
    hiding_line,
    joining_line,
    partners,
    position_line,
    returned_line,
    rotated_after,
)
from mha_lint.facts.caching.protocol import Trial, returned_at
from mha_lint.facts.causal.offset import misalignments
from mha_lint.facts.order import score_operands
from mha_lint.facts.places import span_of
from mha_lint.facts.spans import own_line
from mha_lint.model.causal_facts import Misalignment
from mha_lint.model.source import Span
from mha_lint.sites.dependence import operands, stack_of
from mha_lint.sites.finder import DATA_ERRORS
from mha_lint.sites.site import Site

SAME = 1e-4
"""Relative to the largest element: what float32 weights and inputs leave in float64 is far less."""


@dataclass(frozen=True, slots=True)
class Departure:
    """``cause``: "keys lost", "order", "swapped", "stored keys", "stored values", "states", "query", "key",
    "bias", "mask" or "" where no stage tells; ``detail`` in words; ``span``: the line to look at.
    """

    cause: str = ""
    span: Span | None = None
    detail: str = ""
    misaligned: tuple[Misalignment, ...] = ()


@dataclass(slots=True)
class Recorded:
    """One recorded call, with its real numbers in float64."""

    bench: Bench
    real: Replay = field(init=False)

    def __post_init__(self) -> None:
        """Make the replay on the recorded inputs and weights."""
        self.real = Replay(self.bench.recording)

    def sites(self) -> list[Site]:
        """Return the sites with a product of queries and keys."""
        return [s.all[0] for s in self.bench.sites if s.all[0].score is not None]


def departure(caller: Caller, trial: Trial, number: int) -> Departure:
    """Return where the step of this `number` of `trial` departs from the whole."""
    first, end = caller.chunks()[number]
    try:
        whole = _recorded(caller, trial, 0, end)
        step = _recorded(caller, trial, first, end)
    except Exception:  # user code, or code that cannot be recorded: no line is known then
        return Departure()
    if whole is None or step is None:
        return Departure()
    try:
        return _compared(caller, trial, whole, step, first)
    except (
        DATA_ERRORS
    ):  # the step is another computation than the whole, and cannot be laid beside it
        return Departure()


def recording_of(caller: Caller, trial: Trial, first: int, end: int) -> Recording:
    """Record the call on positions `first` to `end`, with what comes before cached."""
    module = caller.fresh()
    past = trial.plan.start()
    start = min(first, caller.cached)
    ends = [start, *range(start + caller.step, first + 1, caller.step)] if first else []
    for begin, until in itertools.pairwise([0, *ends]):
        output = caller.run(module, trial.plan, begin, until, past)
        past = returned_at(caller, trial.plan, output, past, trial.index)
    args, named = caller.arguments_for(trial.plan, first, end, past)
    return record(module, args, named)


def _recorded(caller: Caller, trial: Trial, first: int, end: int) -> Recorded | None:
    recording = recording_of(caller, trial, first, end)
    return Recorded(Bench.of(recording)) if recording.faithful.ok else None


def _compared(
    caller: Caller, trial: Trial, whole: Recorded, step: Recorded, position: int
) -> Departure:
    made = f"a step with {position} positions cached"
    misaligned = tuple(misalignments(step.bench, made=made))
    for number, site in enumerate(whole.sites()):
        pair = _pair(whole, site, step, number)
        found = _difference(pair, position) if pair is not None else None
        if found is None:
            continue
        cause, detail, node = found
        span = _line(caller, trial, step, cause, node, position)
        if cause == "mask" and (wrong := _hidden_keys(detail)):
            span = hiding_line(step.bench, node, wrong) or span
        if not trial.reads:
            cause, span = "unread", span_of(site.scores)
            detail = "the scores are of the new keys alone"
        return Departure(cause, span, detail, misaligned)
    return Departure(misaligned=misaligned)


@dataclass(frozen=True, slots=True)
class Pair:
    """A site of the whole, and the nodes of the step that stand for its own: `stand` of each."""

    site: Site
    whole: Recorded
    step: Recorded
    stand: dict[Node, Node]

    def base(self, node: Node) -> object:
        """Return the step's value in the place of a node of the whole."""
        return self.step.real.base(self.stand[node])

    @property
    def values(self) -> tuple[Node, int | None]:
        """Return the values of the site, and their axis of positions."""
        node, labels = self.site.value.side(not self.site.weights_left)
        axes = [a for a, x in enumerate(labels) if x is not None and x in self.site.value.summed]
        return node, axes[0] if len(axes) == 1 else None


def _pair(whole: Recorded, site: Site, step: Recorded, number: int) -> Pair | None:
    """Return `site` with what stands for it in the step: the same site, else made by the same lines.

    A step alone need not show attention: where cached keys are no input, one query meets one key.
    """
    nodes = _nodes(site)
    others = step.sites()
    if number < len(others) and len(others) == len(whole.sites()):
        stand = dict(zip(nodes, _nodes(others[number]), strict=True))
    else:
        known = partners(whole.bench, step.bench)
        score, value = known.get(site.scores), known.get(site.context)
        before = known.get(site.normaliser.weights)
        if score is None or value is None or before is None:
            return None
        stand = {}
        for one, other in ((site.scores, score), (site.context, value)):
            stand |= dict(zip(operands(one), operands(other), strict=False))
        stand[site.scores] = score
        logits = dict(zip(operands(site.normaliser.weights), operands(before), strict=False))
        stand[site.normaliser.logits] = logits.get(site.normaliser.logits, score)
    if any(n not in stand for n in nodes):
        return None
    ranks = [(whole.real.base(n).dim(), step.real.base(stand[n]).dim()) for n in nodes]
    return Pair(site, whole, step, stand) if all(a == b for a, b in ranks) else None


def _nodes(site: Site) -> list[Node]:
    """Return the scores, queries, keys, what is normalised, and the values of a site with a score."""
    assert site.score is not None
    q, k = (site.score.side(left)[0] for left in (not site.key_left, site.key_left))
    values = site.value.side(not site.weights_left)[0]
    return [site.scores, q, k, site.normaliser.logits, values]


def _difference(pair: Pair, cached: int) -> tuple[str, str, Node] | None:
    """Return (cause, detail, node of the step's recording) of the first difference at one site."""
    site = pair.site
    assert site.score is not None
    q1, k1 = score_operands(site, pair.whole.real)
    q2, k2 = score_operands(site, pair)
    q_node, _ = site.score.side(not site.key_left)
    k_node, _ = site.score.side(site.key_left)
    queries, keys = pair.stand[q_node], pair.stand[k_node]
    if k2.shape[1] < k1.shape[1]:
        return "keys lost", f"the step attends to {k2.shape[1]} keys, not to {k1.shape[1]}", keys
    k2 = k2[:, : k1.shape[1]]  # a cache of fixed size: what follows is hidden
    if k1.shape != k2.shape or q1.shape[0] != q2.shape[0] or q1.shape[-1] != q2.shape[-1]:
        return None
    last, new = k1.shape[1] - 1, q2.shape[1]
    query = not _same(q1[:, -new:], q2)
    rows = [not _same(k1[:, j], k2[:, j]) for j in range(last + 1)]
    values = _value_rows(pair)
    if any(rows) and (order := _order(k1, k2)) is not None:
        return "order", f"the step's keys lie in the order {order}", keys
    if query and rows[last] and values is not None and values[last]:
        return "states", "queries, keys and values of the new position all differ", queries
    if any(rows[:cached]) and values is not None and _swapped(pair, k2):
        return "swapped", "the cached keys are the values", keys
    if any(rows[:cached]):
        detail = f"the cached keys of positions {_listed(rows[:cached])} differ"
        return "stored keys", detail, keys
    if query:
        return "query", "the query of the new position differs", queries
    if any(rows[cached:]):
        return "key", "the key of the new position differs", keys
    if values is not None and any(values):
        detail = f"the values of positions {_listed(values)} differ"
        return "stored values", detail, pair.stand[pair.values[0]]
    return _at_logits(pair, new)


def _at_logits(pair: Pair, new: int) -> tuple[str, str, Node] | None:
    """Compare what the normaliser is given for the `new` queries; a constant cancels in a softmax."""
    site, logits = pair.site, pair.site.normaliser.logits
    both = [pair.whole.real.base(logits), pair.step.real.base(pair.stand[logits])]
    shape = pair.whole.real.base(site.scores).shape
    if both[0].shape != shape or len(site.row_axes) != 1 or len(site.key_axes) != 1:
        return None
    rows = []
    for one in both:
        moved = one.movedim((site.row_axes[0], site.key_axes[0]), (-2, -1))
        rows.append(moved[..., -new:, :].reshape(-1, moved.shape[-1]))
    count = min(r.shape[-1] for r in rows)
    first, second = (r[:, :count] for r in rows)
    if first.shape != second.shape:
        return None
    hidden = [r <= r.amax(-1, keepdim=True) - 1e3 for r in (first, second)]
    node = pair.stand[logits]
    if not bool((hidden[0] == hidden[1]).all()):
        only = (hidden[1] & ~hidden[0]).any(0).nonzero().flatten().tolist()
        detail = f"the step hides keys {only}" if only else "the step hides fewer keys"
        return "mask", detail, node
    known = ~hidden[0]
    gap = torch.where(known, second - first, torch.nan)
    spread = gap.nan_to_num(nan=-torch.inf).amax(-1) - gap.nan_to_num(nan=torch.inf).amin(-1)
    size = torch.where(known, first, 0.0).abs().amax().clamp(min=1.0)
    if bool((spread > SAME * size).any()):
        return "bias", "what is added to the scores of the new query differs", node
    return None


def _hidden_keys(detail: str) -> list[int]:
    """Return the keys that `_at_logits` names as hidden."""
    inner = detail.partition("[")[2].partition("]")[0]
    return [int(n) for n in inner.split(",") if n.strip()]


def _value_rows(pair: Pair) -> list[bool] | None:
    """Return which rows of the values differ, None where they cannot be told apart."""
    node, axis = pair.values
    if axis is None:
        return None
    held = [pair.whole.real.base(node), pair.step.real.base(pair.stand[node])]
    one, other = (t.movedim(axis, 0).flatten(1) for t in held)
    if one.shape[1] != other.shape[1] or len(other) < len(one):
        return None
    return [not _same(one[j], other[j]) for j in range(len(one))]


def _swapped(pair: Pair, cached: Tensor) -> bool:
    """Return whether the first of the cached keys (G, T_k, D) are values of the whole."""
    node, axis = pair.values
    if axis is None:
        return False
    value = pair.whole.real.base(node).select(axis, 0).flatten()
    first = cached[:, 0].flatten()
    return value.shape == first.shape and _same(value, first)


def _same(one: Tensor, other: Tensor) -> bool:
    size = one.abs().max().clamp(min=1e-6)
    return one.shape == other.shape and bool((one - other).abs().max() <= SAME * size)


def _order(one: Tensor, other: Tensor) -> list[int] | None:
    """Return which key of `one` each key of `other` is, if all are there in another order."""
    found: list[int] = []
    for j in range(other.shape[1]):
        gaps = (one - other[:, j : j + 1]).abs().amax((0, 2))
        best = int(gaps.argmin())
        if not _same(one[:, best], other[:, j]):
            return None
        found.append(best)
    return found if sorted(found) == list(range(len(found))) else None


def _listed(wrong: list[bool]) -> str:
    return ", ".join(str(i) for i, bad in enumerate(wrong) if bad)


def _line(
    caller: Caller, trial: Trial, step: Recorded, cause: str, node: Node, position: int
) -> Span | None:
    """Return the line to look at: where positions are computed, or where past and present join."""
    joined = joining_line(step.bench, node) or span_of(node)
    if cause in ("order", "stored values"):
        return joined
    if cause == "swapped" and (kept := _kept_elsewhere(step.bench, node)) is not None:
        return kept
    if cause in ("keys lost", "swapped", "stored keys"):
        rotated = rotated_after(step.bench, node) if cause == "stored keys" else None
        return rotated or returned_line(caller.module, trial.place) or joined
    others: list[Bench] = []
    width = caller.step
    for first, end in ((position - 1, position - 1 + width), (position, position + width + 1)):
        try:
            one: Recorded | None = _recorded(caller, trial, first, end)
        except Exception:  # user code: steps of two positions may not be meant
            one = None
        others.append(one.bench if one is not None else step.bench)
    found = position_line(step.bench, others[0], others[1], node) or span_of(node)
    return _of_keys_alone(step, node, found) if cause == "key" else found


def _kept_elsewhere(bench: Bench, node: Node) -> Span | None:
    """Return the line that joins past and present where that is no ``forward``: a cache's method."""
    joined = joining_line(bench, node)
    for one in bench.dependence.ancestors([node]):
        if joined is not None and span_of(one) == joined:
            name = stack_of(one)[-1].function.split(".")[-1]
            return joined if name != "forward" else None
    return None


def _of_keys_alone(step: Recorded, node: Node, found: Span | None) -> Span | None:
    """Return the call that `found` serves for keys, where it serves the queries as well."""
    above = step.bench.dependence.ancestors
    queries = [
        n
        for site in step.sites()
        if site.score is not None
        for n in above([site.score.side(not site.key_left)[0]])
        if span_of(n) == found
    ]
    mine = [n for n in above([node]) if span_of(n) == found and n not in queries]
    return own_line(mine[0], queries) if mine and queries else found
