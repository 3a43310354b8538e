"""What happens to the numbers: overflow, dropout in training, gradients, precision."""

from __future__ import annotations

import enum
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

    ``constant``: 1 for softmax-plus-one. ``sums``: smallest and largest sum of one query's weights,
    which stay what they are when all scores of a query grow by one number.
    """

    constant: float
    sums: tuple[float, float]
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
    short: float = 0.0
    """By how much the weights of a query sum to less than 1, at most."""


@dataclass(frozen=True, slots=True)
class RotationLoss:
    """What the angles of a rotation by position lose in a half type.

    ``error``: the largest error of an angle in radians, at ``position`` of ``length``; ``cast``:
    what keeping cos and sin in that type costs. ``recorded``: the call itself has that length.
    """

    dtype: str
    error: float
    position: int
    length: int
    cast: float
    recorded: bool
    span: Span | None

    @property
    def lossy(self) -> bool:
        """Return whether the angles lose more than their cosines and sines do."""
        return self.error > 8 * self.cast


class ReturnFault(enum.StrEnum):
    """How weights that are returned differ from those that were applied."""

    HIDDEN = "hidden"
    """They attend to keys that were hidden when they were applied."""
    OTHER = "other"
    """They are weights too, made once more in another way."""
    SCORES = "scores"
    """They are scores that were not normalised, under a name that says weights."""
    TRANSPOSED = "transposed"
    """Their rows are keys."""
    REPEATED = "repeated"
    """Those of another layer are returned twice, and these not at all."""


@dataclass(frozen=True, slots=True)
class ReturnedWeights:
    """Whether the weights that are returned are those that were applied.

    ``output``: "[1]", ``name``: what the code calls it, as far as that is known. ``largest``: the
    largest weight given to a hidden key, else the largest difference. ``scale``: the factor of the
    scores that explains another softmax, None if none does. ``applied``: where the applied ones are
    made.
    """

    fault: ReturnFault | None = None
    output: str = ""
    name: str = ""
    largest: float = 0.0
    scale: float | None = None
    span: Span | None = None
    applied: Span | None = None


class RateFault(enum.StrEnum):
    """How the dropout that acts in training mode departs from the configured one."""

    NEVER = "never"
    """Nothing drops at that rate."""
    FIXED = "fixed"
    """The weights are dropped at a rate of their own, whatever is configured."""
    KEPT = "kept"
    """What is configured as the rate acts as the probability to keep, or the other way round."""
    OTHER = "other"
    """The weights are dropped at the rate that another argument sets."""
    TWICE = "twice"
    """The weights are dropped twice in a row."""


@dataclass(frozen=True, slots=True)
class TrainingDropout:
    """A dropout that acts in training mode otherwise than configured.

    ``argument`` sets the rate ``configured``; with ``tried`` in its place the dropout acted at
    ``acting`` (None: not at all). ``other``: the argument whose rate it is instead. ``named``: that
    the argument is about attention is told by its name alone. ``kept_at``: where it is stored.
    """

    fault: RateFault
    argument: str = ""
    configured: float = 0.0
    tried: float = 0.0
    acting: float | None = None
    other: str = ""
    named: bool = False
    span: Span | None = None
    kept_at: Span | None = None


@dataclass(frozen=True, slots=True)
class Detached:
    """Projections that the outputs depend on and that get no gradient in training mode.

    ``operands``: among "q", "k", "v" and "o"; ``learning``: those of the same site that do get one.
    ``names``: the parameters. ``how``: "frozen" (they require none, while other projections train),
    or "cut" (the gradient ends between them and the outputs). ``influence``: by how much the outputs
    move with their results, relative to their size. ``span``: where they are cut off or frozen.
    """

    operands: tuple[str, ...]
    names: tuple[str, ...]
    how: str
    influence: float
    span: Span | None
    learning: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dead:
    """A weight that begins as one number throughout, where it cannot learn.

    ``value``: that number. ``gradient``: the size of its gradient with all other parameters drawn at
    random, 0 on a saddle. ``together``: the operands that are zero with it.
    """

    operand: str
    name: str
    value: float
    gradient: float
    together: tuple[str, ...]
    span: Span | None


@dataclass(frozen=True, slots=True)
class Learning:
    """Projections that cannot learn: no gradient reaches them, or they begin where there is none."""

    detached: tuple[Detached, ...] = ()
    dead: tuple[Dead, ...] = ()


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
