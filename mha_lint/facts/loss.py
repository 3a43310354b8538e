"""Which single step of a computation loses most to the type that it runs in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.sites.dependence import operands


def worst_step(
    native: Replay,
    exact: Replay,
    given: Mapping[Node, Tensor],
    steps: Sequence[Node],
    ends: Sequence[Node],
) -> Node | None:
    """Return the one of `steps` that moves `ends` most when all others are exact.

    Each step is run in its own type on the exact values of what it reads, and what follows in
    float64. `given`: substitutes that both replays start from.
    """
    types = native.recording.values
    true = dict(zip(steps, exact.run(steps, given), strict=True))
    due = exact.run(ends, given)
    worst, found = 0.0, None
    for step in steps:
        reads = {n: true.get(n, given.get(n)) for n in operands(step)}
        held = {n: x.to(types[n].dtype) for n, x in reads.items() if x is not None}
        (made,) = native.run([step], held)
        got = exact.run(ends, {**given, step: made.cpu()})
        lost = max(_gap(one, other) for one, other in zip(got, due, strict=True))
        if lost > worst:
            worst, found = lost, step
    return found


def _gap(found: Tensor, due: Tensor) -> float:
    """Return the root of the mean squared difference, infinity if `found` is not finite."""
    gap: float = (found - due).abs().square().mean().sqrt().item()
    return gap if math.isfinite(gap) else math.inf
