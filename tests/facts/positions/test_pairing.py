"""Where a rotation is applied, and where its pairs are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.positions.pairing import turn_span, wrong_pairs
from mha_lint.model.position_facts import PairFault, WrongPairs
from tests.facts.positions.test_pairs import of_q

if TYPE_CHECKING:
    from tests.facts.conftest import Case

Make = Callable[..., "Case"]

INLINE = """\
        low, high = x.chunk(2, dim=-1)
        other = torch.cat((-high, low), dim=-1)
        return x * angle.cos() + other * angle.sin()
"""
JOINED = """\
        angle = angle[:, :3]
        low, high = x.chunk(2, dim=-1)
        one = low * angle.cos() + high * angle.sin()
        two = high * angle.cos() + low * angle.sin()
        return torch.cat((one, two), -1)
"""


def pairs_of(case: Case) -> WrongPairs | None:
    return wrong_pairs(case.bench, case.bench.sites[0], {"q": of_q(case)})


def test_right_pairs(rotary: Make) -> None:
    case = rotary()
    assert pairs_of(case) is None
    assert case.marked(turn_span(of_q(case), case.bench.sites[0])) == "self.rotate(q)"


def test_the_table(rotary: Make) -> None:
    case = rotary(("torch.cat((angle, angle), dim=-1)", "angle.repeat_interleave(2, -1)"))
    found = pairs_of(case)
    assert found is not None
    # Features 0 and 3 have the table's angles 0 and 1: one radian a step, and 100 ** -1/3.
    assert found.example == (
        "at position 2 feature 0 of a head is turned by 1.14 rad,"
        " and feature 3, the other of its pair, by 0.431 rad (half turns and signs aside)"
    )
    assert case.marked(found.table) == "angle.repeat_interleave(2, -1)"
    assert case.marked(found.rotation) == "torch.cat((-high, low), dim=-1)"
    assert found.stretch == pytest.approx((0.0012, 1.4142), abs=1e-4)


def test_the_exchange(rotary: Make) -> None:
    case = rotary(("(-high, low)", "(high, low)"))
    found = pairs_of(case)
    assert found is not None and found.fault is PairFault.SIGNS
    assert case.marked(found.rotation) == "torch.cat((high, low), dim=-1)"
    assert found.table is None


def test_without_an_exchange_the_place_is_where_the_rotation_is_written(rotary: Make) -> None:
    case = rotary((INLINE, JOINED))
    found = pairs_of(case)
    assert found is not None and found.fault is PairFault.SIGNS
    assert case.marked(found.rotation) == "torch.cat((one, two), -1)"


def test_channels_of_several_pairs(rotary: Make) -> None:
    case = rotary(("x.chunk(2, dim=-1)", "x[..., ::2], x[..., 1::2]"))
    found = pairs_of(case)
    assert found is not None and found.fault is PairFault.PARTNERS
    assert found.example == "channel 0 of a head is turned together with channels 1 and 3"
