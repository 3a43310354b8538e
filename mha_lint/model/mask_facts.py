"""What masks do at a site, and whether they fit what the code is meant to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Masking:
    """How the masks of one site act on scores and weights."""


@dataclass(frozen=True, slots=True)
class MaskFit:
    """Whether what is hidden at one site is what should be."""


@dataclass(frozen=True, slots=True)
class IgnoredMask:
    """A mask that was given or built and hides nothing."""


@dataclass(frozen=True, slots=True)
class PaddingLeak:
    """Padded positions that reach real ones."""
