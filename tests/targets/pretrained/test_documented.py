"""Shapes read from docstrings."""

from __future__ import annotations

import pytest
import torch

from mha_lint.targets.pretrained.documented import axis_size, from_docs, shapes_of
from mha_lint.targets.pretrained.needs import Needs

VALUES = {"hidden_size": 48, "patch_size": 4, "spatial_merge_size": 2, "num_channels": 3}


class Model:
    def forward(self, tiles: torch.Tensor, seen: torch.Tensor) -> None:
        r"""
        tiles (`torch.Tensor` of shape `(num_image_tokens, patch_size * spatial_merge_size, num_channels)`):
            The tiles.
        seen (`torch.BoolTensor` of shape `(batch_size, sequence_length)`, *optional*):
            Which of them are seen.
        """


def test_shapes_by_argument() -> None:
    assert shapes_of(Model.forward) == {
        "tiles": (
            "torch.Tensor",
            ["num_image_tokens", "patch_size * spatial_merge_size", "num_channels"],
        ),
        "seen": ("torch.BoolTensor", ["batch_size", "sequence_length"]),
    }


def test_tensors_of_these_shapes() -> None:
    needs = Needs(VALUES)
    made = {n: from_docs(n, *told, needs) for n, told in shapes_of(Model.forward).items()}
    tiles, seen = (make() for make in made.values() if make is not None)
    assert tuple(tiles.shape) == (32, 8, 3)
    assert tiles.dtype is torch.float32
    assert tuple(seen.shape) == (2, 7)
    assert seen.dtype is torch.bool


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("3", 3),
        ("batch_size", 2),
        ("hidden_size // 4 + 1", 13),
        ("2 * sequence_length", 14),
        ("unheard_of", None),
        ("open('x')", None),
        ("1 // 0", None),
        ("num channels", None),
    ],
)
def test_how_long_an_axis_is(text: str, size: int | None) -> None:
    assert axis_size(text, Needs(VALUES)) == size


def test_no_tensor_where_an_axis_is_unknown() -> None:
    assert from_docs("x", "torch.Tensor", ["batch_size", "unheard_of"], Needs(VALUES)) is None
