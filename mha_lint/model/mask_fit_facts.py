"""Whether masks fit what the code is meant to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MaskFit:
    """Whether what is hidden at one site is what should be."""


@dataclass(frozen=True, slots=True)
class PaddingLeak:
    """Padded positions that reach real ones."""
