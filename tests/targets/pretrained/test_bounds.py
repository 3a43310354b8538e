"""Operations that are too large are stopped before they are run."""

from __future__ import annotations

import pytest
import torch

from mha_lint.targets.pretrained.bounds import Bounded, TooMuchError


def test_a_product_that_would_be_too_large() -> None:
    tall = torch.zeros(1, 1).expand(1 << 15, 1)
    with Bounded(5.0), pytest.raises(TooMuchError, match="matmul would make 1073741824 elements"):
        torch.matmul(tall, tall.T)


def test_a_sum_that_would_be_too_large() -> None:
    tall = torch.zeros(1, 1).expand(1 << 15, 1)
    with Bounded(5.0), pytest.raises(TooMuchError, match="1073741824 elements"):
        tall + tall.T


def test_small_ones_run() -> None:
    with Bounded(5.0):
        assert float((torch.ones(2, 3) @ torch.ones(3, 2) + torch.ones(2)).sum()) == 16.0


def test_all_stops_after_the_deadline() -> None:
    one = torch.ones(1)
    with Bounded(-1.0), pytest.raises(TooMuchError, match="too long"):
        one + one
