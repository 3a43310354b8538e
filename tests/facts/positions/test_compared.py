"""Whether the rotations of queries and keys fit together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.facts.positions.compared import Difference, difference, stays, turn_of
from tests.facts.positions.conftest import steps, turned

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

ANGLES = steps(6, 1.0, 0.1)


def test_alike() -> None:
    assert difference(turned(ANGLES), turned(ANGLES), same_tokens=True) is None


def test_a_shift() -> None:
    ahead = turned(steps(7, 1.0, 0.1)[1:])
    assert difference(turned(ANGLES), ahead, same_tokens=True) == Difference("shifted", 1)
    assert difference(ahead, turned(ANGLES), same_tokens=True) == Difference("shifted", -1)
    assert difference(turned(ANGLES), ahead, same_tokens=False) is None


def test_a_constant_turn_that_is_no_position_is_absorbed_by_the_weights() -> None:
    assert difference(turned(ANGLES), turned(ANGLES + 0.37), same_tokens=True) is None


def test_opposite_directions() -> None:
    found = difference(turned(ANGLES), turned(-ANGLES), same_tokens=True)
    assert found is not None
    assert (found.fault, found.row) == ("opposite", found.other)
    across = difference(turned(ANGLES), turned(-ANGLES), same_tokens=False)
    assert across is not None and across.fault == "opposite"


def test_other_angles() -> None:
    other = turned(steps(6, 0.5, 0.1))
    found = difference(turned(ANGLES), other, same_tokens=True)
    assert found is not None and found.fault == "different"
    assert difference(turned(ANGLES), other, same_tokens=False) is None


def test_lengths_do_not_matter() -> None:
    grown = turned(ANGLES)
    grown = replace(grown, one=grown.one * 3, two=grown.two * 3)
    assert difference(turned(ANGLES), grown, same_tokens=True) is None


def test_rows_are_matched_by_their_positions() -> None:
    last = turned(ANGLES[4:], positions=[4, 5])
    assert difference(last, turned(ANGLES), same_tokens=True) is None
    early = turned(ANGLES[:2], positions=[4, 5])
    found = difference(early, turned(ANGLES), same_tokens=True)
    assert found is None  # a constant turn of four steps, more than the rows that are compared


def test_one_common_position() -> None:
    one = turned(ANGLES[5:], positions=[5])
    assert difference(one, turned(ANGLES), same_tokens=True) is None
    start = turned(ANGLES[:1], positions=[5])
    found = difference(start, turned(ANGLES), same_tokens=True)
    assert found is not None and (found.fault, found.other) == ("different", 5)


def test_other_widths_are_not_compared() -> None:
    assert difference(turned(ANGLES), turned(steps(6, 1.0)), same_tokens=True) is None


def test_the_angle_of_one_pair() -> None:
    assert turn_of(turned(ANGLES), 0, 2, 0) == pytest.approx(2.0)
    assert turn_of(turned(-ANGLES), 0, 2, 0) == pytest.approx(2.0)


def test_equal_content_stays_equal_without_positions(measured: Measure) -> None:
    bench = measured().bench
    q = bench.sites[0].q
    assert q is not None and q.source is not None
    assert stays(bench, q, q.source)
    edit = (
        "        scores = q @",
        "        q = q * torch.arange(T)[:, None]\n        scores = q @",
    )
    bench = measured(edit).bench
    q = bench.sites[0].q
    assert q is not None and q.source is not None
    assert not stays(bench, q, q.source)
    torch.testing.assert_close(bench.replay.base(q.node), bench.replay.base(q.node))
