"""Images of a few patches, and the numbers of patches that go with them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from mha_lint.targets.pretrained.leaves import Leaf, Path
from mha_lint.targets.pretrained.roles import Role

SIDE = (4, 6)
"""Patches along a side, by variant."""
LARGEST = 32
"""An image up to this many pixels wide stays."""


def smaller_images(found: Sequence[Leaf], variant: int) -> dict[Path, int]:
    """Return new sizes of images and new numbers of their patches."""
    new: dict[Path, int] = {}
    images = [x for x in found if x.role is Role.IMAGE and x.value > LARGEST]
    mapped: dict[int, int] = {}
    sides: dict[int, tuple[int, int]] = {}
    shares: list[tuple[int, int]] = []
    for leaf in images:
        step = _step(leaf, found)
        if step is None:
            continue
        count = leaf.value // step
        fewer = min(count, SIDE[variant])
        if leaf.value not in mapped:
            mapped[leaf.value] = min(leaf.value, step * fewer)
            sides[leaf.value] = (count, fewer)
            shares.append((leaf.value, mapped[leaf.value]))
    for leaf in images:
        new[leaf.path] = mapped.get(leaf.value, min(leaf.value, 64))
    for leaf in found:
        if leaf.role is Role.PATCH and leaf.value in mapped:  # each patch is another part's image
            new[leaf.path] = mapped[leaf.value]
        if leaf.role is Role.PATCHES:
            several = _several(leaf.value, sides.values()) if leaf.in_list else None
            new[leaf.path] = several or _patches(leaf.value, list(sides.values()), shares)
    return new


def _step(leaf: Leaf, found: Sequence[Leaf]) -> int | None:
    """Return how many pixels one place of the last stage covers."""
    near = [x for x in found if x.scope == leaf.scope]
    patches = [x for x in near if x.role is Role.PATCH]
    if not patches:
        below = [x for x in found if x.scope[: len(leaf.scope)] == leaf.scope]
        patches = [x for x in below if x.role is Role.PATCH]
    stages = len([x for x in near if x.role is Role.DEPTHS])
    if not patches:
        return 2**stages if stages else None
    patch = patches[0].value
    index = leaf.path[-1]
    if leaf.in_list and patches[0].in_list and isinstance(index, int):
        same = [x.value for x in patches if x.key == patches[0].key]
        patch = same[min(index, len(same) - 1)]
    if stages > 1:
        return int(patch * 2 ** (stages - 1))
    return max(patch, 1)


def _several(value: int, sides: Iterable[tuple[int, int]]) -> int | None:
    """Return the side of a finer map of features, as many places to each patch as before."""
    for count, fewer in sides:
        if count > 1 and value in (count, 2 * count, 4 * count):
            return fewer * (value // count)
    return None


def _patches(
    value: int, sides: Sequence[tuple[int, int]], shares: Sequence[tuple[int, int]]
) -> int:
    """Return a number of patches that is the same share of the image's, else a small square."""
    for image, smaller in shares:
        if image % value == 0 and smaller % (image // value) == 0:
            return smaller * value // image
    for count, fewer in sides:
        for merged in (1, 2, 4):
            for extra in (0, 1):
                if (count // merged) ** 2 + extra == value:
                    return max(1, fewer // merged) ** 2 + extra
    if value <= 16:
        return value
    return 16 if math.isqrt(value) ** 2 == value else min(value, 64)
