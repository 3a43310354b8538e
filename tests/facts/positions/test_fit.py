"""Whether pairs are turned as a rotation turns them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from mha_lint.facts.positions.fit import (
    across,
    angle,
    is_rotation,
    lengths,
    level,
    moves_over_rows,
    pair_fault,
    stretch,
)
from mha_lint.model.position_facts import PairFault
from tests.facts.positions.conftest import steps, turned

RIGHT = steps(5, 1.0, 0.1)
WRONG = steps(5, 0.1, 1.0)
"""The angles of the other pair."""


def test_a_rotation() -> None:
    found = turned(RIGHT)
    assert is_rotation(found)
    assert pair_fault(found) is None
    assert moves_over_rows(found)
    torch.testing.assert_close(lengths(found), torch.ones(1, 5, 4).double())
    assert float(across(found).abs().max()) < 1e-12
    assert level(found).tolist() == [[True] * 4]


def test_either_direction_and_reflections_are_rotations() -> None:
    found = turned(-RIGHT)
    assert pair_fault(found) is None
    sign = torch.tensor([1.0, 1.0, -1.0, -1.0]).double()
    mirrored = replace(found, one=found.one * sign, two=found.two * sign)
    assert pair_fault(mirrored) is None


def test_pairs_that_grow_with_the_position_are_right() -> None:
    found = turned(RIGHT)
    growing = torch.linspace(1, 2, 5).double()[None, :, None]
    found = replace(found, one=found.one * growing, two=found.two * growing)
    assert pair_fault(found) is None
    assert level(found).tolist() == [[False] * 4]


def test_two_angles_in_one_pair() -> None:
    found = turned(RIGHT, WRONG)
    assert pair_fault(found) is PairFault.ANGLES
    assert not is_rotation(found)
    low, high, group, row, feature = stretch(found)
    # Rows (cos a, -sin a) and (sin b, cos b) have the product sin(b - a).
    furthest = max(abs(math.sin(0.9 * t)) for t in range(5))
    assert (low, high) == pytest.approx((math.sqrt(1 - furthest), math.sqrt(1 + furthest)))
    assert (group, row) == (0, 2)
    assert angle(found, group, row, feature) == pytest.approx(
        0.2 if feature in (1, 2) else math.pi - 2.0
    )


def test_a_missing_minus() -> None:
    found = turned(RIGHT)
    assert pair_fault(replace(found, two=found.two.abs(), one=found.one.abs())) is PairFault.SIGNS


def test_a_channel_in_two_pairs() -> None:
    found = turned(RIGHT)
    low, high = torch.tensor([[0, 1, 0, 2]]), torch.tensor([[1, 3, 2, 3]])
    lone = replace(found, low=low, high=high, partner=low * 0 - 1, shared=low * 0)
    assert pair_fault(lone) is PairFault.PARTNERS


def test_one_half_of_each_pair_is_no_attempt() -> None:
    found = turned(RIGHT)
    lone = replace(found, partner=found.low * 0 - 1, shared=found.low * 0)
    assert pair_fault(replace(lone, whole=False)) is None


def test_the_same_at_all_positions_is_no_attempt() -> None:
    still = turned(RIGHT[:1].expand(5, 2) + 0.7, RIGHT[:1].expand(5, 2) + 0.1)
    assert not moves_over_rows(still)
    assert pair_fault(still) is None


def test_each_channel_added_to_itself() -> None:
    angles = torch.cat((RIGHT, RIGHT), -1)
    sign = torch.tensor([-1.0, -1.0, 1.0, 1.0])
    found = turned(RIGHT)
    alone = replace(
        found,
        one=(angles.cos() + sign * angles.sin())[None],
        two=torch.zeros(1, 5, 4).double(),
        low=torch.arange(4)[None],
        high=torch.full((1, 4), -1),
        partner=torch.full((1, 4), -1),
        shared=torch.zeros(1, 4, dtype=torch.long),
    )
    assert pair_fault(alone) is PairFault.ALONE
    gates = replace(alone, one=torch.rand(1, 5, 4).double())
    assert pair_fault(gates) is None
