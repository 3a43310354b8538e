"""Larger pictures for a model whose small ones leave one position."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mha_lint.targets.live import live_subject, take
from mha_lint.targets.pretrained.larger import with_larger_pictures
from mha_lint.targets.subject import Subject


class Patches(nn.Module):
    """Takes pictures up to a size."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.embed = most, nn.Conv2d(3, 4, 8, 8)

    def forward(self, pixels: Tensor, ids: Tensor) -> Tensor:
        if pixels.shape[-1] > self.most:
            raise ValueError("too large")
        made: Tensor = self.embed(pixels).flatten(2).mT + ids.sum()
        return made


def subject(most: int) -> Subject:
    pixels, ids = torch.randn(2, 3, 8, 8), torch.ones(2, 5, dtype=torch.long)
    return live_subject(take(Patches(most), (pixels,), {"ids": ids}))


def test_pictures_grow_and_ids_stay() -> None:
    first = next(with_larger_pictures(subject(100)))
    assert first.args[0].shape == (2, 3, 64, 64)
    assert first.kwargs["ids"].shape == (2, 5)


def test_a_size_that_the_model_does_not_take_is_left_out() -> None:
    (only,) = with_larger_pictures(subject(32))
    assert only.args[0].shape == (2, 3, 32, 32)
    assert list(with_larger_pictures(subject(8))) == []


def test_without_pictures_there_is_nothing_larger() -> None:
    plain = live_subject(take(nn.Linear(4, 4), (torch.randn(2, 4),), {}))
    assert list(with_larger_pictures(plain)) == []
