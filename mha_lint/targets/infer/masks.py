"""Ways to make a mask: its axes, and whether it is true and false, ones and zeros, or added."""

from __future__ import annotations

import re

from mha_lint.targets.infer.axes import BATCH_NAMES, HEAD_NAMES, LENGTH_NAMES, WIDTH_NAMES, Axes
from mha_lint.targets.infer.evidence import InputEvidence
from mha_lint.targets.infer.guesses import InputGuess

_OF_PAIRS = re.compile(r"attn_mask|attention_mask|causal|look_ahead")
MOST = 5
"""Shapes that are tried with another kind than the likeliest."""


def mask_options(lower: str, seen: InputEvidence, keys: str) -> list[InputGuess]:
    """Return ways to make a mask; `keys`: the axis symbol of what it hides."""
    rank = seen.rank()
    square = any(set(letters) == {"t", "s"} for letters in seen.letters)
    shapes: list[Axes] = [
        ("B", keys), ("T", keys), ("B", "T", keys), ("B", 1, "T", keys), ("B", 1, 1, keys),
        (1, 1, "T", keys), ("B", keys, 1), ("B", 1, keys), ("B", "H", "W"),
        ("B", "h", "T", keys),
    ]  # fmt: skip
    if rank is not None or square:
        shapes.sort(key=lambda s: (len(s) != (rank or 2), square and s[0] == "B"))
    elif _OF_PAIRS.search(lower) and not seen.boolean:
        shapes.sort(key=lambda s: s[0] == "B" and len(s) == 2)
    written = [axes for letters in seen.letters if (axes := _written(letters, keys)) is not None]
    shapes = list(dict.fromkeys([a for a in written if len(a) == (rank or len(a))] + shapes))
    kinds = _kinds(seen)
    ways = [InputGuess(kinds[0], shape) for shape in shapes]
    return ways + [InputGuess(kind, shape) for kind in kinds[1:] for shape in shapes[:MOST]]


def mask_part(seen: InputEvidence, usual: InputGuess, keys: str) -> InputGuess:
    """Return the guess for one of several masks that an input is unpacked into."""
    if seen.factor and not seen.as_mask:
        return InputGuess("ones", ("B", keys, 1))
    if seen.additive_mask and not seen.boolean:
        return InputGuess("zeros", ("B", 1, 1, keys))
    return usual


def _kinds(seen: InputEvidence) -> list[str]:
    """Return kinds of masks, the likeliest first.

    What is added somewhere has to be zeros there, and fused attention takes it as well.
    """
    added = seen.additive_mask and not seen.boolean and not seen.numeric_mask
    if added and not seen.hides.get(True):
        return ["zeros", "true", "false", "ones"]
    if seen.numeric_mask:
        return ["ones", "zeros"]
    if seen.hides.get(True, 0.0) > seen.hides.get(False, 0.0):
        return ["false", "true", "zeros"]
    return ["true", "false", "zeros", "ones"]


def _written(letters: tuple[str, ...], keys: str) -> Axes | None:
    """Return the axes of a mask that was described: ``(batch, heads, length, length)``."""
    axes: list[str | int] = []
    for place, letter in enumerate(letters):
        last = place == len(letters) - 1
        plain = letter.rstrip("0123456789_")
        if letter == "1":
            axes.append(1)
        elif plain in BATCH_NAMES and not last:
            axes.append("B")
        elif plain in HEAD_NAMES and place == 1 and len(letters) == 4:
            axes.append("h")
        elif plain in LENGTH_NAMES or "len" in plain or "time" in plain:
            axes.append(keys if last else "T")
        elif last and plain not in WIDTH_NAMES:
            axes.append(keys)
        else:
            return None
    return tuple(axes)
