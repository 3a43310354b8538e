"""Positions that are alike, and the patterns that are meant."""

from __future__ import annotations

import pytest
import torch

from mha_lint.facts.positions.repeats import Repeats, repeats_of


def rows(numbers: list[int]) -> torch.Tensor:
    """Return one row (R, 2) for each number."""
    return torch.tensor([[float(n), float(n) ** 2 + 1] for n in numbers])


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([0, 1, 2, 3, 4, 4, 4], Repeats("clamped", 4, 5, 2)),
        ([0, 1, 2, 3, 3], Repeats("clamped", 3, 4, 1)),
        ([0, 0, 0, 0], Repeats("same", 0, 1, 3)),
        ([0, 1, 2, 0, 1], Repeats("wrapped", 0, 3, 2)),
        ([0, 1, 2, 2, 3, 4, 5, 6], Repeats("repeated", 2, 3, 1)),
    ],
)
def test_repeats(numbers: list[int], found: Repeats) -> None:
    assert repeats_of(rows(numbers)) == found


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 1, 2, 3],
        [3, 1, 2, 0],
        [0, 0],
        [0, 0, 0, 1, 1, 1],
        [0, 0, 1, 1, 2],
        [0, 1, 2, 0, 1, 2],
        [0, 0, 0, 1, 1, 1, 1],
        [0, 0, 1, 2, 3],
        [0, 1, 1, 1, 1],
    ],
    ids=[
        "all differ",
        "any order",
        "too short",
        "frames",
        "frames, the last cut",
        "grids",
        "two kinds of tokens",
        "a first token without a position",
        "a first token and a kind",
    ],
)
def test_meant(numbers: list[int]) -> None:
    assert repeats_of(rows(numbers)) is None


def test_a_first_token_that_must_not_repeat() -> None:
    found = repeats_of(rows([0, 0, 1, 2, 3]), first_may_repeat=False)
    assert found == Repeats("repeated", 0, 1, 1)
