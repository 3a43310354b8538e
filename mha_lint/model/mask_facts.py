"""How masks act at a site."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Masking:
    """How the masks of one site act on scores and weights."""


@dataclass(frozen=True, slots=True)
class IgnoredMask:
    """A mask that was given or built and hides nothing."""
