"""One number taken off all scores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mha_lint.capture import Recording, Replay
from mha_lint.facts.bench import Bench
from mha_lint.sites.dependence import op
from mha_lint.sites.levels import without_levels

Record = Callable[..., Recording]
X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))


class Scores(nn.Module):
    """Attention of x on itself, what is done with the scores given."""

    def __init__(self, normalise: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.normalise = normalise

    def forward(self, x: Tensor) -> Tensor:
        return self.normalise(x @ x.mT) @ x


def turned(scores: Tensor) -> Tensor:
    scores = torch.clamp(scores - scores.max(), min=-50000, max=50000)
    return (scores.transpose(-2, -1) - scores.mT.amax(-1, keepdim=True)).softmax(-1)


@pytest.mark.parametrize(
    "normalise",
    [
        pytest.param(lambda s: (s - s.max()).softmax(-1), id="method"),
        pytest.param(lambda s: (s - torch.amax(s).detach()).softmax(-1), id="detached"),
        pytest.param(lambda s: (s - s.amax((0, 1, 2), keepdim=True)).softmax(-1), id="kept axes"),
        pytest.param(turned, id="before the scores are turned"),
    ],
)
def test_what_a_softmax_does_not_see_is_taken_out(
    recorded: Record, normalise: Callable[[Tensor], Tensor]
) -> None:
    recording = recorded(Scores(normalise), X)
    (output,) = recording.outputs
    before = Replay(recording).base(output)
    without_levels(recording)
    subtractions = [n for n in recording.graph.nodes if op(n) == "sub"]
    assert all(recording.values[n.args[1]].numel() > 1 for n in subtractions)
    torch.testing.assert_close(Replay(recording).base(output), before, rtol=1e-12, atol=1e-12)
    for node in recording.graph.nodes:
        if op(node) in ("softmax", "sub", "clamp"):
            torch.testing.assert_close(
                recording.values[node].double(), Replay(recording).base(node), rtol=1e-4, atol=1e-4
            )


@pytest.mark.parametrize(
    "normalise",
    [
        pytest.param(lambda s: (s - s.max()).sigmoid(), id="it changes the weights"),
        pytest.param(lambda s: (s - s.amax(-1, keepdim=True)).softmax(-1), id="of each row"),
        pytest.param(lambda s: (s - s.mean()).softmax(-1), id="another level"),
        pytest.param(
            lambda s: (s - s.max()).exp() / (s - s.max()).exp().sum(-1, keepdim=True),
            id="it keeps the sum finite",
        ),
    ],
)
def test_all_else_stays(recorded: Record, normalise: Callable[[Tensor], Tensor]) -> None:
    recording = recorded(Scores(normalise), X)
    before = str(recording.graph)
    without_levels(recording)
    assert str(recording.graph) == before


def test_both_ways_over_one_product_are_told_apart(recorded: Record) -> None:
    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        scores = x @ y.mT
        scores = scores - scores.max()
        other = scores.mT - scores.mT.amax(-1, keepdim=True)
        return scores.softmax(-1) @ y, other.softmax(-1) @ x

    bench = Bench.of(recorded(forward, X, torch.randn(2, 4, 6)))
    assert [tuple(s.normaliser.weights.meta["shape"]) for s in bench.sites] == [
        (2, 5, 4),
        (2, 4, 5),
    ]
