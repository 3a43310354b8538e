"""What happens to the numbers: overflow, dropout in training, gradients, precision."""

from __future__ import annotations

from dataclasses import dataclass

from mha_lint.model.source import Span


@dataclass(frozen=True, slots=True)
class Overflow:
    """A step at which numbers leave the range of their type though the weights would fit into it.

    ``dtype``: "float32"; ``limit``: its largest number. ``reached``: how large the exponent (of
    ``exp``) or the raw score was there; ``lost``: how many of the ``total`` weights or scores are
    no finite numbers any more.
    """

    dtype: str
    limit: float
    reached: float
    lost: int
    total: int
    span: Span | None


@dataclass(frozen=True, slots=True)
class AddedToSum:
    """A constant beside the sum of exponentials from which the largest score was taken off first.

    ``constant``: 1 for softmax-plus-one. ``sums``: smallest and largest sum of one query's weights.
    ``moved``: by how much they change when all scores grow by 5: not at all, so that a head can never
    attend to nothing.
    """

    constant: float
    sums: tuple[float, float]
    moved: float
    span: Span | None


@dataclass(frozen=True, slots=True)
class Stability:
    """What large scores and narrow types do to the normaliser of one site.

    ``exponential``: it overflows, since no maximum is taken off. ``product``: the raw scores of
    the recorded call overflow before the scale makes them small (``gain``). ``added``: what is
    added to the sum of the exponentials was not shifted as they were.
    """

    exponential: Overflow | None = None
    product: Overflow | None = None
    gain: float = 1.0
    added: AddedToSum | None = None


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
    """What a site loses in the type that it runs in, beside a straightforward implementation.

    ``dtype``: "float16". ``ratio``: the median over the draws of its rms error against float64,
    divided by that of a straightforward implementation; ``allowed``: up to which it is rounding.
    ``error`` and ``plain_error``: the medians of both. ``span``: the step that loses most.
    """

    dtype: str
    ratio: float
    allowed: float
    error: float
    plain_error: float
    draws: int
    span: Span | None = None

    @property
    def exceeded(self) -> bool:
        """Return whether more is lost than rounding explains."""
        return not self.ratio <= self.allowed
