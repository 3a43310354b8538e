"""Sets of sizes to build with. The first has no two equal numbers, so that no two readings of a
scale coincide; the later ones are rounder, for code that asks for powers of two.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scheme:
    """Sizes of one attempt: ``width`` = heads * head_dim, ``source``: length of a second sequence,
    ``side``: height of an image (its width is one more, unless ``square``).
    """

    batch: int = 3
    length: int = 7
    source: int = 11
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 6
    layers: int = 2
    vocabulary: int = 29
    side: int = 4
    square: bool = False

    @property
    def width(self) -> int:
        """Return d_model."""
        return self.heads * self.head_dim

    @property
    def inner(self) -> int:
        """Return the width of a feed-forward layer."""
        return 2 * self.width


SCHEMES = (
    Scheme(),
    Scheme(length=16, source=12, head_dim=8, vocabulary=31, side=4, square=True),
    Scheme(length=16, source=16, head_dim=16, vocabulary=67, side=8, square=True),
    Scheme(length=64, source=64, heads=8, kv_heads=4, head_dim=32, side=16, square=True),
)
