"""Tensors without memory: which are fake, and which are real."""

from __future__ import annotations

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from mha_lint.targets.large import LARGE, WithoutLarge, is_large


def test_only_large_weights_have_no_values() -> None:
    with WithoutLarge():
        layer = nn.Linear(1024, 1024)
        table = torch.arange(64.0) * 2
    assert isinstance(layer.weight, FakeTensor) and not isinstance(layer.bias, FakeTensor)
    assert tuple(layer.weight.shape) == (1024, 1024)
    assert table.tolist() == [2.0 * i for i in range(64)]


def test_a_tensor_of_the_limit_is_large() -> None:
    with WithoutLarge():
        assert isinstance(torch.empty(LARGE), FakeTensor)
        assert not isinstance(torch.empty(LARGE - 1), FakeTensor)
        assert isinstance(torch.zeros(512, LARGE // 512), FakeTensor)


def test_what_comes_of_a_fake_tensor_is_fake_and_all_else_is_real() -> None:
    with WithoutLarge():
        layer = nn.Linear(1024, 512)
        x = torch.ones(2, 1024)
        mask = torch.ones(2, 2).tril()
        y = layer(x)
        if mask[0, 1] == 0:  # code may look at what is real
            y = y + mask.sum()
    assert isinstance(y, FakeTensor) and tuple(y.shape) == (2, 512)
    assert not isinstance(mask, FakeTensor)
    assert mask.tolist() == [[1, 0], [1, 1]]


def test_real_tensors_in_lists_meet_fake_ones() -> None:
    with WithoutLarge():
        large = torch.empty(2, LARGE)
        joined = torch.cat([large, torch.ones(2, 3)], dim=1)
    assert isinstance(joined, FakeTensor) and tuple(joined.shape) == (2, LARGE + 3)


def test_large_modules_are_told() -> None:
    with WithoutLarge():
        large = nn.Sequential(nn.ReLU(), nn.Linear(1024, 1024))
    assert is_large(large)
    assert is_large(nn.Linear(4, 4, device="meta"))
    assert not is_large(nn.Linear(4, 4))
