"""What happens to the numbers: overflow, dropout in training, gradients, precision."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stability:
    """What large scores and narrow types do to the normaliser of one site."""


@dataclass(frozen=True, slots=True)
class ReturnedWeights:
    """Whether the weights that are returned are those that were applied."""


@dataclass(frozen=True, slots=True)
class TrainingDropout:
    """The dropout that acts on the weights in training mode, beside what was configured."""


@dataclass(frozen=True, slots=True)
class Learning:
    """Projections that cannot learn, or are constant."""


@dataclass(frozen=True, slots=True)
class HalfLoss:
    """What a site loses in the type that it runs in, beside a straightforward implementation."""
