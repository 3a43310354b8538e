"""What positions do to queries, keys and scores, and which key/value head each query head meets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rotary:
    """The rotation of queries, keys and values by position."""


@dataclass(frozen=True, slots=True)
class PositionBias:
    """What is added to the scores by position: linear biases, tables, shifted products."""


@dataclass(frozen=True, slots=True)
class HeadGroups:
    """Which key/value head each query head meets."""
