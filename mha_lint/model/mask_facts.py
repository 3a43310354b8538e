"""How masks act at a site."""

from __future__ import annotations

from dataclasses import dataclass

from mha_lint.model.source import Span


@dataclass(frozen=True, slots=True)
class MaskStep:
    """One operation that brings a mask to the scores or the weights of a site.

    ``on``: "scores" or "weights" (behind the softmax). ``how``: "filled", "added" or "multiplied".
    ``fill``: the number that a hidden pair gets, or that is added to it or multiplies it, None where
    there are several or none is hidden. ``dtype`` and ``mask_dtype``: the recorded types of what is
    masked and of the mask. ``shape``: that of the mask as it meets the scores. ``inputs`` and
    ``buffers``: the names of what the mask is made from, neither for one that is built of sizes
    alone. ``applied``: where it acts; ``made``: where its pattern was made, behind layout, casts and
    negations (None: it is an argument as it came); ``fill_at``: where the number of ``fill`` stands.
    ``hides``: the share of the pairs that it marks.
    """

    on: str
    how: str
    fill: float | None
    dtype: str
    mask_dtype: str
    shape: tuple[int, ...]
    inputs: tuple[str, ...]
    buffers: tuple[str, ...]
    applied: Span | None
    made: Span | None
    fill_at: Span | None
    hides: float


@dataclass(frozen=True, slots=True)
class LateMask:
    """A mask that hides weights behind the normaliser, which are not normalised again.

    ``pairs`` of ``of`` weights are taken away. ``sums``: smallest and largest sum of one query's
    weights over the keys, and ``before`` the largest without the step. ``fill``: what a hidden
    weight becomes.
    """

    span: Span | None
    made: Span | None
    fill: float
    pairs: int
    of: int
    sums: tuple[float, float]
    before: float


@dataclass(frozen=True, slots=True)
class MaskNumber:
    """A mask of truth values that is used as a number.

    ``how``: "added", "multiplied" or "collapsed" (a bool tensor filled with ``value``, so that it
    holds True). ``dtype``: the recorded type of the mask. ``value``: what a masked pair gets added
    or is multiplied by. ``kept``: the largest weight that a pair on one side of the mask keeps,
    beside the largest on the other side.
    """

    span: Span | None
    made: Span | None
    how: str
    dtype: str
    value: float
    kept: float


@dataclass(frozen=True, slots=True)
class WeakFill:
    """A fill that does not hide.

    ``kept``: the weight of a hidden pair beside the largest visible one of its row, at the recorded
    scores; ``loud``: the same with float inputs times 60. ``level``: the highest that the normaliser
    gets for a hidden pair, ``lowest``: the lowest that it gets for a visible one. ``span``: where the
    number stands, or acts.
    """

    span: Span | None
    applied: Span | None
    how: str
    fill: float
    kept: float
    loud: float
    level: float = 0.0
    lowest: float = 0.0


@dataclass(frozen=True, slots=True)
class MaskOverflow:
    """A mask whose numbers leave the range of the type that the call runs in.

    ``kind``: "fill" (one number), "sum" (two fills added) or "nan" (0 times infinity). ``value``: the
    number in float64, ``becomes`` in ``dtype``. ``nan_rows`` of ``rows`` queries get NaN weights for
    it; ``reaches``: an output holds NaN.
    """

    span: Span | None
    kind: str
    value: float
    becomes: float
    dtype: str
    nan_rows: int
    rows: int
    reaches: bool


@dataclass(frozen=True, slots=True)
class EmptyRows:
    """Queries of the recorded call that no key is left for, and whose result is not thrown away.

    ``nan``: their weights are NaN, and reach the outputs; else they attend to hidden keys.
    ``whole``: no query of their sample has a key left. ``fill``: what hides. ``example``: the first
    such row, by sample and query.
    """

    span: Span | None
    rows: int
    of: int
    nan: bool
    whole: bool
    fill: float
    example: str


@dataclass(frozen=True, slots=True)
class Squashed:
    """A bounded map behind a mask.

    ``fill``: what hides ahead of it; ``level``: what is left of that at the softmax. ``kept``: the
    largest weight of a hidden pair beside the largest visible one of its row.
    """

    span: Span | None
    masked_at: Span | None
    fill: float
    level: float
    kept: float


@dataclass(frozen=True, slots=True)
class Masking:
    """How the masks of one site act on scores and weights: every step, and what is wrong with some."""

    steps: tuple[MaskStep, ...] = ()
    late: tuple[LateMask, ...] = ()
    numbers: tuple[MaskNumber, ...] = ()
    weak: tuple[WeakFill, ...] = ()
    overflow: MaskOverflow | None = None
    empty: EmptyRows | None = None
    squashed: tuple[Squashed, ...] = ()


@dataclass(frozen=True, slots=True)
class IgnoredMask:
    """A mask that was given or built and hides nothing.

    ``name``: the argument, or the buffer; "" for one that was built in the call. ``how``: "unread"
    (an argument that nothing reads), "discarded" (the result of a fill that nothing reads) or
    "built" (made, and not passed on). ``shape`` and ``dtype`` describe it, ``inputs`` what it was made
    from. ``named``: a name says that it is a mask. ``span``: the line to edit; ``made``: where it was made.
    """

    name: str
    how: str
    shape: tuple[int, ...]
    dtype: str
    inputs: tuple[str, ...]
    named: bool
    span: Span | None
    made: Span | None
