"""What angles of positions lose where they are computed in a half type.

The angle of position n is n times a frequency: at position 1000 float16 has steps of half a radian,
bfloat16 of four. Cosines and sines of it, which lie between -1 and 1, may well be kept in such a
type. So the angles are computed twice, as recorded and in float64, and compared.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.facts.bench import Bench
from mha_lint.facts.loss import worst_step
from mha_lint.facts.places import span_of
from mha_lint.facts.rotation_table import angle_table_loss, table_losses
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Known, NotApplicable
from mha_lint.model.numeric_facts import RotationLoss
from mha_lint.sites.dependence import is_number, is_tensor, op, operands
from mha_lint.sites.site import Site

HALVES = (torch.float16, torch.bfloat16)
LONG = 1024
"""Positions over which angles are compared where the call has fewer."""
NO_ANGLES = NotApplicable("no angles of positions are computed in a half type")


@unless_data_decides
def measure_rotation_loss(bench: Bench, site: Site) -> Fact[RotationLoss]:
    """Return what the angles of queries or keys of `site` lose to a half type."""
    if bench.dependence.dtypes.isdisjoint(HALVES):
        return NO_ANGLES
    member = site.all[0]
    found: list[RotationLoss] = []
    region = _region(bench, member)
    for angles in _angles(bench, region):
        found += _losses(bench, angles)
    found += table_losses(bench, region)
    if not found:
        return NO_ANGLES
    worst = max(found, key=lambda loss: (loss.lossy and loss.recorded, loss.error))
    return Known(worst, "angles computed as recorded and in float64 were compared")


def _region(bench: Bench, member: Site) -> set[Node]:
    """Return what comes in between the projections of queries and keys and themselves.

    What was added to the states before the projection is no rotation, and what is added behind it
    is none either.
    """
    dependence = bench.dependence
    region: set[Node] = set()
    for operand in (member.q, member.k):
        if operand is None:
            continue
        sources = [s.node for s in operand.sources if not s.learned]
        zeros = {n: torch.zeros_like(bench.replay.base(n)) for n in sources}
        if operand.node in sources or not sources:
            continue
        (rest,) = bench.replay.run([operand.node], zeros)
        if not bool(rest.any()):
            region |= dependence.ancestors([operand.node]) - dependence.ancestors(sources)
    return region


def _angles(bench: Bench, region: set[Node]) -> list[Node]:
    """Return what cosine and sine are taken of in `region`, where no states are behind it."""
    dependence, recording = bench.dependence, bench.recording
    floats = {
        p
        for p in recording.placeholders
        if is_number(recording, p) and recording.values[p].dim() > 2
    }
    found: set[Node] = set()
    for node in region:
        read = operands(node)
        angle = {"cos": 0, "sin": 0, "polar": 1}.get(op(node))
        if angle is None or len(read) <= angle or not is_number(recording, read[angle]):
            continue
        if not dependence.ancestors([read[angle]]) & floats:
            found.add(read[angle])
    return sorted(found, key=dependence.order.__getitem__)


def _losses(bench: Bench, angles: Node) -> list[RotationLoss]:
    """Return what `angles` lose at the recorded length, and over many positions."""
    recording = bench.recording
    above = bench.dependence.ancestors([angles])
    halves = [n for n in above if n.meta.get("dtype") in HALVES]
    if not halves:
        return []
    dtype = recording.values[halves[0]].dtype
    native, exact = Replay(recording, dtype=None), Replay(recording)
    steps = sorted(
        (n for n in above if n.op == "call_function" and is_number(recording, n)),
        key=bench.dependence.order.__getitem__,
    )
    tables = [n for n in halves if n.op == "get_attr" and recording.values[n].dim() > 1]
    found = [x for n in tables if (x := angle_table_loss(bench, n)) is not None]
    positions = _positions(bench, above)
    for spread in (False, True):
        if spread and (len(positions) != 1 or recording.values[positions[0]].max() >= LONG - 1):
            continue
        given = {n: _spread(recording.values[n]) for n in positions} if spread else {}
        (rounded,), (due,) = native.run([angles], given), exact.run([angles], given)
        gap = (rounded.double() - due).abs()
        at = _at(bench, positions, given, gap)
        error = float(gap.max())
        place = worst_step(native, exact, given, steps, [angles]) if error else None
        found.append(
            RotationLoss(
                dtype=str(dtype).removeprefix("torch."),
                error=error,
                position=at[0],
                length=LONG if spread else at[1],
                cast=torch.finfo(dtype).eps / 2,
                recorded=not spread,
                span=span_of(place or angles),
            )
        )
    return found


def _positions(bench: Bench, above: Collection[Node]) -> list[Node]:
    """Return the nodes that hold the numbers 0 ... n - 1 of positions."""
    found = []
    for node in above:
        counted = op(node) == "arange" or node in bench.recording.placeholders
        if not counted or not is_tensor(bench.recording, node):
            continue
        value = bench.recording.values[node].double()
        count = value.shape[-1] if value.dim() else 0
        if count > 1 and bool((value == torch.arange(count)).all()):
            found.append(node)
    return found


def _spread(value: Tensor) -> Tensor:
    """Return positions as `value` holds them, spread over a long sequence, in its type."""
    count = value.shape[-1]
    long = (torch.arange(count, dtype=torch.float64) * (LONG - 1) / (count - 1)).round()
    return long.expand(value.shape).to(value.dtype)


def _at(
    bench: Bench, positions: list[Node], given: dict[Node, Tensor], gap: Tensor
) -> tuple[int, int]:
    """Return the position with the largest error, as far as that is known, and how many there are."""
    if len(positions) != 1:
        longest = max(gap.shape, default=1)
        return longest - 1, longest
    numbers = given.get(positions[0], bench.recording.values[positions[0]]).double()
    count = numbers.shape[-1]
    axes = [a for a in range(gap.dim()) if gap.shape[a] == count]
    if not axes:
        return int(numbers.max()), int(numbers.max()) + 1
    others = [a for a in range(gap.dim()) if a != axes[0]]
    worst = int(gap.amax(others).argmax()) if others else int(gap.argmax())
    return int(numbers.reshape(-1, count)[0, worst]), int(numbers.max()) + 1
