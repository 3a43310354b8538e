"""Whether the weights that are returned are those that were applied.

What was made from the applied weights alone (their mean over heads, some of their rows) is them.
Looked at is what was made of the same queries and keys without them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.pairs import pairs_of
from mha_lint.facts.output_names import name_of_output, says_weights
from mha_lint.facts.places import return_after, span_of
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable
from mha_lint.model.numeric_facts import ReturnedWeights, ReturnFault
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, operands, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.trace import trace, varies_along

NEAR = 1e-6
"""Sums and weights that differ by less are the same."""
SHOWN = 1e-3
"""A weight or a difference that is larger is no rounding."""
NONE = NotApplicable("no weights are returned")


@unless_data_decides
def measure_returned(bench: Bench, site: Site) -> Fact[ReturnedWeights]:
    """Return how the weights among the outputs compare with those of `site`."""
    if site.kind in (Kind.LINEAR, Kind.CHANNEL) or site.normaliser.element is None:
        return NONE
    missing = _left_out(bench, site)
    if missing is not None:
        return Known(missing, "compared by which weights each output is made from")
    found = [
        told
        for index, output in enumerate(bench.recording.outputs)
        if _is_candidate(bench, site, output)
        and (told := _compared(bench, site, index, output)) is not None
    ]
    if not found:
        return NONE
    worst = next((told for told in found if told.fault is not None), found[0])
    return Known(worst, "compared with the operand that meets V, in float64")


def _is_candidate(bench: Bench, site: Site, output: Node) -> bool:
    """Return whether `output` has a row of numbers for the queries and keys of `site`, without V."""
    if not is_number(bench.recording, output) or len(shape(bench.recording, output)) < 2:
        return False
    above = bench.dependence.ancestors([output])
    if any(m.context in above for m in site.all):
        return False
    member = site.all[0]
    if not all(_reads(above, o) for o in (member.q, member.k)):
        return False
    sizes = list(shape(bench.recording, output))
    for size in _sides(bench, member):
        if size not in sizes or size < 2:
            return False
        sizes.remove(size)
    return True


def _reads(above: Collection[Node], operand: Operand | None) -> bool:
    if operand is None:
        return True
    return operand.node in above or any(s.node in above for s in operand.sources)


def _sides(bench: Bench, member: Site) -> tuple[int, int]:
    sizes = shape(bench.recording, member.scores)
    return (
        math.prod(sizes[a] for a in member.row_axes),
        math.prod(sizes[a] for a in member.key_axes),
    )


def _compared(bench: Bench, site: Site, index: int, output: Node) -> ReturnedWeights | None:
    """Return how one output compares, None if it is something else."""
    name = name_of_output(bench, index)
    told = bench.recording.output_names[index]
    at = ReturnedWeights(output=told, name=name, applied=span_of(site.all[0].normaliser.weights))
    applied = {m.weights for s in bench.sites for m in s.all}
    if _made_from(bench, output, applied):
        return _turned(bench, site, output, at)
    normalised = {m.normaliser.weights for s in bench.sites for m in s.all}
    if _made_from(bench, output, applied | normalised):
        return _before_a_mask(bench, site, output, at)
    value = bench.replay.base(output)
    sums = value.sum(-1)
    if bool((value < -NEAR).any()) or not bool(((sums - 1).abs() < NEAR).all()):
        return _unnormalised(bench, site, output, at)
    return _made_again(bench, site, output, at)


def _made_from(bench: Bench, output: Node, weights: set[Node]) -> bool:
    """Return whether no number of the call reaches `output` but through `weights`."""
    placeholders = set(bench.recording.placeholders)
    front, seen = [output], set[Node]()
    while front:
        node = front.pop()
        if node in seen or node in weights:
            continue
        seen.add(node)
        if node in placeholders and is_number(bench.recording, node):
            return False
        front += operands(node)
    return bool(weights & bench.dependence.ancestors([output]))


def _turned(bench: Bench, site: Site, output: Node, at: ReturnedWeights) -> ReturnedWeights:
    """Look whether rows and keys of the applied weights changed places on the way out."""
    member = next(
        (m for m in site.all if m.weights in bench.dependence.ancestors([output])), site.all[0]
    )
    rows, keys = _weight_axes(member)
    same = shape(bench.recording, output) == shape(bench.recording, member.weights)
    queries_first = bool(rows) and bool(keys) and max(rows) < max(keys)
    if output is member.weights or not same or not queries_first or not says_weights(at.name, True):
        return at
    traced = trace(bench.replay, member.weights, output)
    last = len(shape(bench.recording, output)) - 1
    turned = traced.all_clean and any(varies_along(traced.index[r], last) for r in rows)
    if not turned or any(varies_along(traced.index[k], last) for k in keys):
        return at
    gap = (bench.replay.base(output) - bench.replay.base(member.weights)).abs().max()
    return _faulty(at, ReturnFault.TRANSPOSED, float(gap), return_after(output))


def _weight_axes(member: Site) -> tuple[list[int], list[int]]:
    """Return the axes of the weights that hold queries, and those that hold keys."""
    _, labels = member.value.side(member.weights_left)
    free = member.value.free(member.weights_left)
    keys = [i for i, x in enumerate(labels) if x is not None and x in member.value.summed]
    return [i for i, x in enumerate(labels) if x is not None and x in free], keys


def _before_a_mask(
    bench: Bench, site: Site, output: Node, at: ReturnedWeights
) -> ReturnedWeights | None:
    """Look whether a mask was applied to the weights after what is returned was taken off."""
    above = bench.dependence.ancestors([output])
    member = next((m for m in site.all if m.normaliser.weights in above), None)
    if member is None:
        return None
    return _hidden(bench, member, output, at) or at


def _hidden(
    bench: Bench, member: Site, output: Node, at: ReturnedWeights
) -> ReturnedWeights | None:
    """Return the fault if `output` attends to keys that the applied weights hide."""
    value, applied = bench.replay.base(output), bench.replay.base(member.weights)
    if value.shape != applied.shape:
        return None
    pairs = pairs_of(bench, member)
    if pairs is not None:
        tables = pairs.table(output, value), pairs.table(member.weights, applied)
        if tables[0] is not None and tables[1] is not None:
            value, applied = tables  # rows and keys may have changed places between the two
    shown = value.where(applied == 0, torch.zeros_like(value))
    if not bool(shown.max() > SHOWN) or not bool((applied != 0).any()):
        return None
    return _faulty(at, ReturnFault.HIDDEN, float(shown.max()), _made_at(bench, member, output))


def _made_at(bench: Bench, member: Site, output: Node) -> Span | None:
    """Return where to look: the return, or the line that makes the other weights."""
    own = {m.normaliser.weights for s in bench.sites for m in s.all} | {member.normaliser.logits}
    if own & bench.dependence.ancestors([output]):
        return return_after(output)
    return span_of(output)


def _unnormalised(
    bench: Bench, site: Site, output: Node, at: ReturnedWeights
) -> ReturnedWeights | None:
    """Look whether scores are returned under a name that says weights."""
    member = site.all[0]
    above = bench.dependence.ancestors([output])
    if member.scores not in above or not says_weights(at.name, False):
        return None
    value = bench.replay.base(output)
    if not bool((value < -SHOWN).any()):
        return None
    sums = value.nan_to_num(neginf=0).sum(-1)
    return _faulty(at, ReturnFault.SCORES, float((sums - 1).abs().max()), return_after(output))


def _made_again(
    bench: Bench, site: Site, output: Node, at: ReturnedWeights
) -> ReturnedWeights | None:
    """Compare weights that were computed once more with the applied ones, or their mean over heads."""
    member = site.all[0]
    if site.members:
        return None
    value, applied = bench.replay.base(output), bench.replay.base(member.weights)
    rows, keys = _weight_axes(member)
    heads = [a for a in range(applied.dim()) if a not in (*rows, *keys)]
    alike = [applied, *(applied.mean(a) for a in heads), *(applied.mean(a, True) for a in heads)]
    alike += [applied.select(a, i) for a in heads for i in range(applied.shape[a])]
    gaps = [float((value - one).abs().max()) for one in alike if one.shape == value.shape]
    if not gaps:
        return None
    if min(gaps) < SHOWN:
        return at
    hidden = _hidden(bench, member, output, at)
    if hidden is not None:
        return hidden
    scale = _scale_between(value, applied) if value.shape == applied.shape else None
    if scale is None and _raw(member):
        return None  # a comparison of its own, of arguments that others may compare as well
    told = _faulty(at, ReturnFault.OTHER, min(gaps), span_of(output))
    return dataclasses.replace(told, scale=scale)


def _raw(member: Site) -> bool:
    """Return whether queries or keys are an argument of the call, as it came."""
    ends = [o for o in (member.q, member.k) if o is not None]
    return any(s.kind == "input" for o in ends for s in o.sources)


def _scale_between(value: Tensor, applied: Tensor) -> float | None:
    """Return by how much the logarithms of `value` exceed those of `applied`, if by one factor."""
    logs = [x.clamp(min=1e-300).log() for x in (value, applied)]
    one, two = (x - x.mean(-1, keepdim=True) for x in logs)
    energy = float(two.square().sum())
    if not energy or not math.isfinite(energy):
        return None
    scale = float((one * two).sum()) / energy
    return scale if bool((one - scale * two).abs().max() < SHOWN) else None


def _faulty(
    at: ReturnedWeights, fault: ReturnFault, largest: float, span: Span | None
) -> ReturnedWeights:
    return dataclasses.replace(at, fault=fault, largest=largest, span=span)


def _left_out(bench: Bench, site: Site) -> ReturnedWeights | None:
    """Return the fault if another layer's weights are returned twice, and those of `site` never."""
    if len(bench.sites) < 2:
        return None
    returned: list[tuple[int, Node, list[Site]]] = []
    for index, output in enumerate(bench.recording.outputs):
        from_ = [s for s in bench.sites if _is_candidate(bench, s, output)]
        own = [s for s in from_ if _made_from(bench, output, {m.weights for m in s.all})]
        if own:
            returned.append((index, output, own))
    if len(returned) != len(bench.sites) or any(site in own for _, _, own in returned):
        return None
    nodes = [node for _, node, _ in returned]
    twice = next((i for i, node in enumerate(nodes) if node in nodes[:i]), None)
    if twice is None:
        return None
    index, node, _ = returned[twice]
    return ReturnedWeights(
        ReturnFault.REPEATED,
        bench.recording.output_names[index],
        name_of_output(bench, index),
        0.0,
        None,
        return_after(node),
        span_of(site.all[0].normaliser.weights),
    )
