"""Inputs to measure on: data is redrawn, masks and flags stay."""

from __future__ import annotations

import torch
from torch import Tensor

from mha_lint.capture import record
from mha_lint.facts.bench import measuring_inputs


def test_masks_stay_and_data_is_redrawn() -> None:
    padded = torch.zeros(3, 100)
    padded[:, 90:] = -torch.inf
    late = torch.cat((torch.zeros(100), torch.arange(100.0)))
    given = (torch.randn(3, 100), padded, late, torch.arange(5))

    def add(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        return (a + b).softmax(-1).sum() + c.sum() + d.sum()

    data, mask, mixed, whole = measuring_inputs(record(add, given, {}), 0)
    assert not torch.equal(data.float(), given[0])
    assert torch.equal(mask, padded)
    assert not torch.equal(mixed.float(), late) and mixed.min() >= 0
    assert torch.equal(whole, given[3])
