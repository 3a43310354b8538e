"""Rows and the positions that move them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mha_lint.facts.causal.rows import (
    aligned_axis,
    axis_moves,
    context_axis,
    held_moves,
    moves,
    moves_of,
    rows_of,
)
from mha_lint.facts.influence import dominant_shift, entries, some

if TYPE_CHECKING:
    from tests.facts.conftest import Measure


def test_some_positions() -> None:
    assert some(3) == [0, 1, 2]
    assert some(11) == [0, 2, 4, 6, 8, 10]
    assert (some(100)[0], some(100)[-1], len(some(100))) == (0, 99, 6)


def test_rows_of_operands(measured: Measure) -> None:
    bench = measured().bench
    (site,) = bench.sites
    rows = rows_of(bench, site)
    assert rows.v is not None
    assert rows.q.shape == rows.k.shape == (5, 2 * 4 * 6)
    # Row 1 of q (B, h, T, d) begins behind the 6 channels of row 0 of the first head.
    assert rows.q[1, :6].tolist() == list(range(6, 12))
    assert context_axis(bench, site) == 2


def test_each_position_moves_a_row_of_its_own(measured: Measure) -> None:
    bench = measured().bench
    (site,) = bench.sites
    (entry,) = entries(bench)
    assert site.q is not None
    positions, (change,) = held_moves(bench, entry, [site.q.node])
    found = moves(positions, change, rows_of(bench, site).q, 5)
    assert (found.own, found.apart, found.early()) == (0, True, None)


def test_what_is_mixed_from_behind() -> None:
    rows = torch.eye(5) + 0.1 * torch.eye(5).roll(-1, 1)
    found = moves_of(range(5), rows, 5)
    assert (found.own, found.apart) == (0, False)
    position, row, change = found.early() or (0, 0, 0.0)
    assert (position - row, round(change, 3)) == (1, 0.1)


def test_the_row_before_may_move_more_than_the_own_one() -> None:
    centred = torch.eye(5) + 2 * torch.eye(5).roll(-1, 1)
    centred[0, 4] = 0  # the first position has no row before it
    found = moves_of(range(5), centred, 5)
    assert dominant_shift(range(5), centred) == -1
    assert (found.own, found.early()) == (0, (1, 0, 2.0))
    shifted = torch.eye(5).roll(-1, 1)  # each row holds the next position, and no more
    assert (moves_of(range(5), shifted, 5).own, moves_of(range(5), shifted, 5).early()) == (
        -1,
        None,
    )


def test_what_is_mixed_from_before_is_right() -> None:
    rows = torch.eye(5) + 2 * torch.eye(5).roll(1, 1).tril(-1).T + torch.eye(5).triu(1)
    assert moves_of(range(5), torch.ones(5, 5).triu(), 5).early() is None
    assert rows.shape == (5, 5)


def test_more_rows_than_positions_have_others_in_front() -> None:
    rows = torch.zeros(4, 6)
    rows[torch.arange(4), torch.arange(4) + 2] = 1
    rows[:, :2] = 0.1
    assert moves_of(range(4), rows, 4).own == 2


def test_a_summary_is_of_no_position() -> None:
    found = moves_of(range(5), torch.full((5, 5), 0.2), 5)
    assert (found.own, found.early()) == (None, None)


def test_a_dominant_shift() -> None:
    assert dominant_shift(range(4), torch.eye(4) + 0.5) == 0
    assert dominant_shift(range(3), torch.eye(4)[1:] + 0.5) == 1
    assert dominant_shift(range(4), torch.ones(4, 4)) is None


def test_the_axis_of_positions() -> None:
    change = torch.zeros(5, 5, 5, 3)  # moved position, sample, row, channel
    change[torch.arange(5), :, torch.arange(5)] = 1.0
    assert aligned_axis(range(5), change) == 1
    assert axis_moves(range(5), change, 1, 5).apart
    assert aligned_axis(range(5), torch.ones(5, 5, 5, 3)) is None
