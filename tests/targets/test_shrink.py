"""Examples that are too large to measure are made smaller, images included."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mha_lint.targets.subject import Subject

Open = Callable[..., object]

VIT = """
class ViT(nn.Module):
    def __init__(self, *, image_size, patch_size, dim, depth, heads):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch_size, patch_size)
        self.places = nn.Parameter(torch.randn((image_size // patch_size) ** 2, dim))
        self.layers = nn.ModuleList(
            nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(depth)
        )
        self.picked = PICKED

    def forward(self, img):
        x = self.embed(img).flatten(2).mT + self.places
        seen = [x]
        for layer in self.layers:
            seen.append(x := x + layer(x, x, x)[0])
        return seen[self.picked]


if __name__ == "__main__":
    model = ViT(image_size=224, patch_size=16, dim=512, depth=6, heads=8)
    model(torch.randn(4, 3, 224, 224))
"""


@pytest.mark.parametrize(
    ("picked", "build", "batch"),
    [
        ("-1", "ViT(image_size=64, patch_size=16, dim=64, depth=2, heads=8)", 3),
        ("5", "ViT(image_size=64, patch_size=16, dim=512, depth=6, heads=8)", 4),
    ],
)
def test_images_become_a_few_patches_wide(
    picked: str, build: str, batch: int, opened: Open
) -> None:
    subject = opened(VIT.replace("PICKED", picked), "ViT")
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    assert subject.build == build
    assert subject.args[0].shape == (batch, 3, 64, 64)
    assert subject.notes[-1].startswith("made smaller than in ViT(image_size=224")
