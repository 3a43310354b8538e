"""Picks among equal numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mha_lint.capture import record
from mha_lint.facts.caching.ties import picks_among_equals
from mha_lint.sites.dependence import Dependence

TIED = torch.tensor([[3.0, 1.0, 2.0, 2.0], [4.0, 3.0, 2.0, 1.0]])
HIDDEN = torch.tensor([[3.0, 1.0, -3e38, -3e38], [4.0, 3.0, 2.0, 1.0]])


class Picks(nn.Module):
    def __init__(self, pick: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.pick = pick

    def forward(self, x: Tensor) -> Tensor:
        return self.pick(x)


def picks(pick: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    return picks_among_equals(Dependence(record(Picks(pick), (x,), {})))


@pytest.mark.parametrize(
    ("pick", "tied"),
    [
        (lambda x: x.topk(2).indices, True),
        (lambda x: x.topk(2, dim=-1)[1] * 1.0, True),
        (lambda x: torch.topk(x, 1).indices, False),
        (lambda x: x.topk(3).indices, False),
        (lambda x: x.topk(2, largest=False).indices, True),
        (lambda x: x.topk(2).values, False),
        (lambda x: x.argsort(-1), True),
        (lambda x: torch.sort(x, 1)[1], True),
        (lambda x: x.sort(0).indices, True),
        (lambda x: x.argmax(-1), False),
        (lambda x: (-x).argmin(), False),
        (lambda x: (-x).max(-1).indices, False),
        (lambda x: x.clamp(max=2).max(-1).indices, True),
        (lambda x: x.clamp(max=2).amax(-1), False),
        (lambda x: torch.max(x, -x), False),
        (lambda x: x.topk(2).indices * 0 + 1, True),
        (lambda x: x + 0 * x.sum(), False),
    ],
)
def test_whether_places_hang_on_a_tie(pick: Callable[[Tensor], Tensor], tied: bool) -> None:
    assert picks(pick, TIED) is tied


@pytest.mark.parametrize(
    "pick", [lambda x: x.topk(3).indices, lambda x: x.argsort(descending=True)]
)
def test_what_is_hidden_comes_last_in_any_order(pick: Callable[[Tensor], Tensor]) -> None:
    assert not picks(pick, HIDDEN)
