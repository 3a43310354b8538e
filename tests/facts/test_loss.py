"""The step that loses most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.capture import Replay
from mha_lint.facts.loss import worst_step
from mha_lint.facts.places import span_of
from mha_lint.sites.dependence import is_number

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

LOGITS = "scores = scores / math.sqrt(self.d_k)"
WEIGHTS = "weights = scores.softmax(dim=-1)"


@pytest.mark.parametrize(
    ("edit", "at"),
    [
        (
            (LOGITS, f"{LOGITS}\n        scores = scores + 1000\n        scores = scores - 1000"),
            "+ 1000",
        ),
        ((WEIGHTS, f"{WEIGHTS}\n        weights = weights.half().float()"), "weights.half()"),
        ((WEIGHTS, "scores = scores.bfloat16().float()\n        " + WEIGHTS), "bfloat16()"),
    ],
)
def test_the_worst_step(edit: tuple[str, str], at: str, measured: Measure) -> None:
    case = measured(edit)
    bench, site = case.bench, case.bench.sites[0]
    assert site.score is not None
    steps = [
        n
        for n in bench.dependence.between(site.score.left, site.context)
        if is_number(bench.recording, n)
    ]
    native = Replay(bench.recording, dtype=None)
    generator = torch.Generator().manual_seed(0)
    given = {
        n: torch.randn(bench.recording.values[n].shape, generator=generator)
        for n in (site.score.left, site.score.right, site.v.node)
    }
    found = worst_step(native, Replay(bench.recording), given, steps, [site.context])
    span = span_of(found)
    assert span is not None and span.line == case.line(at)


def test_nothing_is_lost_without_steps(measured: Measure) -> None:
    bench = measured().bench
    site = bench.sites[0]
    native, exact = Replay(bench.recording, dtype=None), Replay(bench.recording)
    assert worst_step(native, exact, {}, [], [site.context]) is None
