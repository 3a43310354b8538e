"""What the layers that a module calls tell about its inputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mha_lint.targets.subject import Subject

Open = Callable[..., object]

PATCHES = """
from einops.layers.torch import Rearrange

class Patches(nn.Module):
    def __init__(self, patch_size, dim, heads):
        super().__init__()
        self.embed = nn.Sequential(
            Rearrange("PATTERN", p1=patch_size, p2=patch_size),
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, dim),
        )
        self.a = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, img):
        x = self.embed(img)
        return self.a(x, x, x)[0]
"""


@pytest.mark.parametrize(
    ("pattern", "width", "rank", "axis"),
    [
        ("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", "2 * patch_size**2", 4, 1),
        ("b (h p1) (w p2) c -> b (h w) (p1 p2 c)", "2 * patch_size**2", 4, 3),
    ],
)
def test_an_einops_layer_tells_axes_and_channels(
    pattern: str, width: str, rank: int, axis: int, opened: Open
) -> None:
    pytest.importorskip("einops")
    source = PATCHES.replace("PATTERN", pattern).replace("WIDTH", width)
    subject = opened(source, "Patches")
    assert isinstance(subject, Subject), getattr(subject, "reason", "")
    (image,) = subject.args
    assert image.dim() == rank
    assert image.shape[axis] == 2
