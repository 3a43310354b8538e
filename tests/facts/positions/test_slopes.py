"""Linear biases: lines, slopes and which slopes are in use."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mha_lint.facts.positions.slopes import (
    Lines,
    accepted,
    is_geometric,
    lines_of,
    matches,
    published,
    spread,
)


def biases(*slopes: float, queries: int = 6, keys: int = 6) -> Tensor:
    """Return -slope * |i - j| (H, T_q, T_k), the queries being the last ones of the keys."""
    place = torch.arange(keys - queries, keys).double()
    distance = (place[:, None] - torch.arange(keys)).abs()
    return -torch.tensor(slopes, dtype=torch.float64)[:, None, None] * distance


def all_of(level: Tensor) -> Tensor:
    return torch.ones_like(level, dtype=torch.bool)


def test_both_sides() -> None:
    level = biases(0.5, 0.25)
    assert lines_of(level, all_of(level), (0,)) == Lines((0.5, 0.25), (-0.5, -0.25), 0)


def test_later_keys_hidden() -> None:
    level = biases(0.5)
    assert lines_of(level, all_of(level).tril(), (0,)) == Lines((0.5,), None, 0)


def test_by_key_alone() -> None:
    level = 0.5 * torch.arange(6.0).expand(1, 6, 6)
    assert lines_of(level, all_of(level), (0,)) == Lines((0.5,), (0.5,), 0)
    assert lines_of(level, all_of(level).tril(), (0,)) == Lines((0.5,), None, 0)


def test_beside_a_cache() -> None:
    level = biases(0.5, queries=2, keys=7)
    seen = all_of(level).tril(5)
    assert lines_of(level, seen, (5, 0)) == Lines((0.5,), None, 5)
    early = -0.5 * (torch.arange(2.0)[:, None] - torch.arange(7)).abs()[None]
    found = lines_of(early, seen, (5, 0))
    assert found is not None and found.own == 0


def test_slopes_by_row() -> None:
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.03, 0.01])
    level = biases(1.0) * slopes[:, None]
    found = lines_of(level, all_of(level), (0,))
    assert found is not None and not found.steady
    assert found.by_row == pytest.approx((0.25, 0.125, 0.0625, 0.03, 0.01))


@pytest.mark.parametrize(
    "level",
    [
        torch.zeros(2, 6, 6),
        torch.randn(2, 6, 6),
        -((torch.arange(6.0)[:, None] - torch.arange(6)) ** 2)[None],
        -torch.log1p((torch.arange(6.0)[:, None] - torch.arange(6)).abs())[None],
    ],
    ids=["nothing", "a table", "squares", "logarithms"],
)
def test_no_lines(level: Tensor) -> None:
    assert lines_of(level, all_of(level), (0,)) is None


def test_published_slopes() -> None:
    assert published(8) == tuple(2.0**-i for i in range(1, 9))
    assert published(4) == (0.25, 0.0625, 2**-6, 2**-8)
    assert published(6) == (0.25, 0.0625, 2**-6, 2**-8, 0.5, 0.125)
    assert published(1) == (2**-8,)


def test_slopes_in_use() -> None:
    mpt = accepted(6)[1]
    assert mpt == (0.25, 0.0625, 2**-6, 2**-8, 0.5, 0.125)
    assert accepted(3)[1] == (2**-4, 2**-8, 2**-2)
    assert accepted(3)[2] == pytest.approx((2 ** (-8 / 3), 2 ** (-16 / 3), 2**-8))
    assert accepted(2)[3] == pytest.approx((-math.log(31 / 32), -math.log(63 / 64)))
    assert accepted(4)[-1] == (2**-4, 2**-8) * 2


def test_matching() -> None:
    assert matches((0.0625, 0.25), (0.25, 0.0625))
    assert matches((0.251, 0.0625), (0.25, 0.0625))
    assert not matches((0.25, 0.05), (0.25, 0.0625))
    assert not matches((0.25,), (0.25, 0.0625))
    assert matches((0.125, 0.03125), (0.25, 0.0625), 0.5)


def test_geometric() -> None:
    assert is_geometric((0.5, 0.25, 0.125))
    assert not is_geometric((0.5, 0.25))
    assert not is_geometric((0.5, 0.4, 0.3))
    assert not is_geometric((0.5, 0.5, 0.5))


def test_places_spread_evenly() -> None:
    assert spread(5, 9).tolist() == [0, 1, 2, 3, 4]
    assert spread(101, 3).tolist() == [0, 50, 100]
    assert spread(1, 3).tolist() == [0]
