"""The words that a user may state of a target: what its code is meant to be."""

from __future__ import annotations

EXPECTATIONS: tuple[str, ...] = (
    "causal",
    "bidirectional",
    "self",
    "cross",
    "mask=keep",
    "mask=hide",
    "scale=sqrt",
    "scale=none",
    "scale=mup",
    "normaliser=any",
    "gqa=blocked",
    "gqa=tiled",
    "over=batch",
    "no-output-projection",
)
"""All values of ``expect``: a key that holds, or a key with its value."""
