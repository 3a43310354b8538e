"""A part of a large call."""

from __future__ import annotations

import torch

from mha_lint.targets.live import Snapshot, live_subject, take
from mha_lint.targets.live.narrow import narrowed


def attend(x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    scores: torch.Tensor = x @ x.mT
    return (scores if mask is None else scores + mask).softmax(-1) @ x


def part_of(one: Snapshot) -> Snapshot | None:
    return narrowed(one, live_subject(one))


def test_samples_go_first() -> None:
    x = torch.randn(64, 60, 8)
    part = part_of(take(attend, (x,), {}))
    assert part is not None
    assert torch.equal(part.args[0], x[:2])


def test_positions_go_as_well_wherever_they_stand() -> None:
    x, mask = torch.randn(64, 400, 8), torch.zeros(400, 400)
    part = part_of(take(attend, (x, mask), {}))
    assert part is not None
    assert torch.equal(part.args[0], x[:2, :21])
    assert part.args[1].shape == (21, 21)


def test_what_the_code_does_not_take_stays() -> None:
    weights = torch.randn(400, 8)

    def fixed(x: torch.Tensor) -> torch.Tensor:
        return attend(x + weights)

    x = torch.randn(64, 400, 8)
    part = part_of(take(fixed, (x,), {}))
    assert part is not None
    assert torch.equal(part.args[0], x[:2])


def test_a_small_call_stays() -> None:
    assert part_of(take(attend, (torch.randn(4, 10, 8),), {})) is None
