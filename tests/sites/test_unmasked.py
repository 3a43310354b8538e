"""Where masked elements came from."""

from __future__ import annotations

import torch

from mha_lint.sites.unmasked import _along_one_axis


def places(axis: int) -> torch.Tensor:
    """Return the place along `axis` of each element of a (2, 3, 4) tensor."""
    return torch.meshgrid(*(torch.arange(n) for n in (2, 3, 4)), indexing="ij")[axis]


def test_a_masked_element_lies_in_line_with_the_others() -> None:
    known = torch.ones(2, 3, 4, dtype=torch.bool)
    known[1, :, 2:] = False
    cut = torch.where(known, places(2), -1)
    assert torch.equal(_along_one_axis(cut, known, 4), places(2))


def test_what_is_masked_throughout_lies_in_its_own_place() -> None:
    known = torch.ones(2, 3, 4, dtype=torch.bool)
    known[:, :, 3] = False
    cut = torch.where(known, places(2), -1)
    assert torch.equal(_along_one_axis(cut, known, 4), places(2))


def test_axes_that_were_exchanged() -> None:
    known = torch.ones(2, 3, 4, dtype=torch.bool)
    known[0, 2] = False
    turned = 2 - places(1)
    assert torch.equal(_along_one_axis(torch.where(known, turned, -1), known, 3), turned)


def test_a_diagonal_tells_nothing_of_its_axes() -> None:
    index = torch.arange(3).expand(3, 3)
    known = torch.eye(3, dtype=torch.bool)
    cut = torch.where(known, index, -1)
    assert torch.equal(_along_one_axis(cut, known, 3), cut)


def test_a_sink_beside_the_keys_is_no_score() -> None:
    known = torch.ones(2, 3, 4, dtype=torch.bool)
    known[:, :, 3] = False
    cut = torch.where(known, places(2), -1)
    assert torch.equal(_along_one_axis(cut, known, 3), cut)
