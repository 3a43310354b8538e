"""Whether later positions reach earlier ones, and whether cached decoding agrees with the whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Causality:
    """Which later positions reach earlier ones, at the sites and through the whole subject."""


@dataclass(frozen=True, slots=True)
class CacheCheck:
    """Decoding with a cache, compared with one call on the whole sequence."""


@dataclass(frozen=True, slots=True)
class StateCheck:
    """What one call changes for the next."""
