"""Triangles and bands among visible pairs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mha_lint.facts.masks.patterns import Pattern, pattern_of, triangle_in

ONES = torch.ones(1, 6, 6, dtype=torch.bool)


def band(first: int, last: int) -> Tensor:
    """Return pairs whose key lies `first` to `last` positions behind the query (negative: ahead)."""
    i = torch.arange(6)
    behind = i[:, None] - i[None]
    return ((behind >= first) & (behind <= last))[None]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (ONES.tril(), Pattern("earlier", True, True, 0)),
        (ONES.tril(-1), Pattern("earlier", False, True, 0)),
        (ONES.triu(), Pattern("later", True, True, 0)),
        (ONES.triu(1), Pattern("later", False, True, 0)),
        (band(0, 2), Pattern("earlier", True, False, 0)),
        (band(-2, 0), Pattern("later", True, False, 0)),
        (ONES, None),
        (band(-1, 1), None),
        (ONES & torch.eye(6, dtype=torch.bool), None),
        (ONES & torch.tensor([1, 1, 1, 1, 0, 0], dtype=torch.bool), None),
        (ONES & torch.tensor([1, 0, 0, 0, 0, 0], dtype=torch.bool), None),
    ],
)
def test_shapes(visible: Tensor, expected: Pattern | None) -> None:
    assert pattern_of(visible, square=True) == expected


def test_padding_is_left_aside() -> None:
    real = torch.tensor([1, 1, 1, 1, 0, 0], dtype=torch.bool)
    assert pattern_of(ONES.tril() & real, square=True) == Pattern("earlier", True, True, 0)
    assert pattern_of(ONES.triu() & real[:, None], square=True) == Pattern("later", True, True, 0)
    assert pattern_of(torch.cat([ONES.tril() & real, ONES.tril()]), square=True) is not None


def test_a_triangle_of_three_strictly_later_positions() -> None:
    three = torch.ones(1, 3, 3, dtype=torch.bool)
    assert pattern_of(three.triu(1), square=True) == Pattern("later", False, True, 0)
    assert pattern_of(three[:, :2, :2].triu(1), square=True) is None


def test_no_square() -> None:
    wide = torch.ones(1, 3, 7, dtype=torch.bool)
    assert pattern_of(wide.tril(), square=True) is None
    assert pattern_of(wide.tril(), square=False) == Pattern("earlier", True, True, 0)
    assert pattern_of(wide.tril(4), square=False) == Pattern("earlier", True, True, 4)
    assert pattern_of(wide, square=False) is None


def test_an_irregular_half_is_no_band() -> None:
    odd = ONES.tril().clone()
    odd[0, 3, 1] = False
    assert pattern_of(odd, square=True) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.ones(4, 4).triu(), (True, True)),
        (torch.ones(1, 1, 4, 4).tril(), (False, True)),
        (torch.ones(4, 4).triu(1).bool(), (True, False)),
        (torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1) > 0, -1e9), (True, False)),
        (torch.ones(4, 4), None),
        (torch.ones(2, 2).tril(), None),
        (torch.ones(4, 5).tril(), None),
        (torch.eye(4), None),
    ],
)
def test_triangles_as_tensors(value: Tensor, expected: tuple[bool, bool] | None) -> None:
    assert triangle_in(value) == expected
