"""Rotations in the order of the scores: groups, rows and features."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.facts.positions.pairs import Turned, given_tables, operand_turns, turned_of

if TYPE_CHECKING:
    from tests.facts.conftest import Case

Rotary = Callable[..., "Case"]

ROTATED = "        q, k = self.rotate(q), self.rotate(k)\n"


def of_q(case: Case) -> Turned:
    site = case.bench.sites[0]
    assert site.q is not None
    found = turned_of(case.bench, site, site.q, operand_turns(case.bench, site.q), queries=True)
    assert found is not None
    return found


def test_a_rotation_of_halves(rotary: Rotary) -> None:
    found = of_q(rotary())
    assert found.whole and found.mixes
    assert found.one.shape == (8, 5, 6)
    assert found.samples.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found.heads.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert found.positions.tolist() == [[0, 1, 2, 3, 4]] * 8
    assert found.partner.tolist() == [[3, 4, 5, 0, 1, 2]] * 8
    assert found.low.tolist() == [[0, 1, 2, 0, 1, 2]] * 8
    assert found.high.tolist() == [[3, 4, 5, 3, 4, 5]] * 8
    assert bool(found.paired.all())
    angle = torch.tensor(3.0, dtype=torch.float64)
    assert float(found.one[5, 3, 0]) == pytest.approx(float(angle.cos()))
    assert float(found.two[5, 3, 0]) == pytest.approx(-float(angle.sin()))


def test_a_part_of_the_channels(rotary: Rotary) -> None:
    part = "        q, k = (torch.cat((self.rotate(t[..., :2]), t[..., 2:]), -1) for t in (q, k))\n"
    found = of_q(rotary((ROTATED, part), ("* self.speed", "* self.speed[:1]")))
    assert found.high[0].tolist() == [1, 1, -1, -1, -1, -1]
    assert found.partner[0].tolist() == [1, 0, -1, -1, -1, -1]


def test_behind_a_norm_the_features_are_those_of_the_rotation(rotary: Rotary) -> None:
    normed = ROTATED + "        q = q * torch.rsqrt(q.square().mean(-1, keepdim=True) + 1e-6)\n"
    plain, found = of_q(rotary()), of_q(rotary((ROTATED, normed)))
    assert not found.whole
    torch.testing.assert_close(found.one, plain.one)
    assert found.partner.tolist() == plain.partner.tolist()


def test_two_rotations_of_parts(rotary: Rotary) -> None:
    halves = (
        "        q, k = (torch.cat((self.rotate(t[..., :2]).tanh(), self.rotate(t[..., 2:4]),"
        " t[..., 4:]), -1) for t in (q, k))\n"
    )
    found = of_q(rotary((ROTATED, halves), ("* self.speed", "* self.speed[:1]")))
    assert len(found.turns) == 2


def test_tables_that_are_passed_keep_their_values(rotary: Rotary) -> None:
    case = rotary(
        ("def forward(self, x):", "def forward(self, x, angle):"),
        ("def rotate(self, x):", "def rotate(self, x, angle):"),
        ("        place = torch.arange(x.shape[-2])\n", ""),
        ("        angle = place[:, None] * self.speed\n", ""),
        ("self.rotate(q), self.rotate(k)", "self.rotate(q, angle), self.rotate(k, angle)"),
        call="torch.randn(2, 5, 24), torch.arange(5.)[:, None] * torch.tensor([1., .5, .25])",
    )
    q = case.bench.sites[0].q
    assert q is not None
    ((node, value),) = given_tables(case.bench, q).items()
    assert node.name == "angle" and value.dtype is torch.float64
    assert value[:, 1].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
