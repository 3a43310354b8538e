"""What positions do to queries, keys and scores, and which key/value head each query head meets."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from mha_lint.model.source import Span


class PairFault(enum.StrEnum):
    """Why a rotation keeps neither lengths nor relative positions."""

    ANGLES = "angles"
    """The two channels of a pair are turned by different angles."""
    SIGNS = "signs"
    """Both channels of a pair take the other one with the same sign: a shear, no rotation."""
    PARTNERS = "partners"
    """A channel stands in several pairs."""
    ALONE = "alone"
    """Each channel is added to itself: the halves were not exchanged."""
    TORN = "torn"
    """The two channels of a pair are in different heads."""


@dataclass(frozen=True, slots=True)
class WrongPairs:
    """A rotation whose pairs do not fit.

    ``example``: one sentence with channels, position and numbers. ``stretch``: smallest and largest
    length of what was a vector of length 1. ``table``: where the angles are laid out.
    """

    fault: PairFault
    operands: tuple[str, ...]
    example: str
    stretch: tuple[float, float]
    rotation: Span | None
    table: Span | None


@dataclass(frozen=True, slots=True)
class WrongTurnAxis:
    """A rotation that follows the ``axis`` ("heads" or "samples") and not the position."""

    axis: str
    operands: tuple[str, ...]
    example: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class UnevenTurns:
    """Queries and keys that are rotated differently.

    ``fault``: "one-sided", "opposite", "shifted" or "different". ``turned``: the operand that is
    turned (one-sided) or at fault, ``other`` the other one. ``shift``: by how many positions.
    """

    fault: str
    turned: str
    other: str
    shift: int
    example: str
    span: Span | None
    other_span: Span | None


@dataclass(frozen=True, slots=True)
class RepeatedPositions:
    """Positions of one sequence that are told apart by nothing.

    ``fault``: "same" (all alike), "clamped" (the last ones), "wrapped" (they begin anew),
    "restarted" (they do so in each part that the module cuts out), "repeated", or "batch" (they
    follow the sample). ``first``, ``second``: two positions that are alike, ``count`` how many of
    ``length`` share theirs with an earlier one. ``what``: what stands
    for the position ("the rotation", "the position embedding").
    """

    fault: str
    what: str
    first: int
    second: int
    count: int
    length: int
    span: Span | None


@dataclass(frozen=True, slots=True)
class Rotary:
    """The rotation of queries, keys and values by position.

    ``turned``: the operands among "q", "k", "v" that are rotated. ``values``: where the values are
    rotated without being rotated back. ``gain``: by how much rotations lengthen q and k together (1,
    but for YaRN, which puts its factor into the tables). All else is None where it is right.
    """

    turned: tuple[str, ...]
    pairs: WrongPairs | None = None
    axis: WrongTurnAxis | None = None
    uneven: UnevenTurns | None = None
    values: Span | None = None
    values_turned: bool = False
    repeated: RepeatedPositions | None = None
    gain: float = 1.0


class SlopeFault(enum.StrEnum):
    """What is wrong with a linear bias."""

    SIGN = "sign"
    """It grows with the distance: far keys are favoured."""
    FUTURE = "future"
    """It goes on growing behind the query, where later keys are visible."""
    SAME = "same"
    """All heads have one and the same slope."""
    SLOPES = "slopes"
    """The slopes are not those of the definition."""
    ROWS = "rows"
    """The slope follows the query's position."""
    OFFSET = "offset"
    """The distances are counted from another position than the query's."""
    FLAT = "flat"
    """It is the same for all keys, and cancels in the softmax."""


@dataclass(frozen=True, slots=True)
class WrongSlopes:
    """A linear bias that departs from ALiBi's definition.

    ``slopes``: one per head, ``due`` those of the definition. ``sure``: False where a design could
    be meant.
    """

    fault: SlopeFault
    slopes: tuple[float, ...]
    due: tuple[float, ...]
    example: str
    span: Span | None
    sure: bool = True


@dataclass(frozen=True, slots=True)
class WrongShift:
    """A further product whose rows were moved, so that scores depend on other queries.

    ``query``, ``key``: a visible score; ``row``: the query whose product it holds. ``count`` of
    ``visible`` scores of one head are so. ``row`` is -1 where padding stands in its place, though
    the query has a product for each key.
    """

    query: int
    key: int
    row: int
    count: int
    visible: int
    span: Span | None


@dataclass(frozen=True, slots=True)
class PositionBias:
    """What is added to the scores by position: linear biases, and products that were shifted."""

    slopes: WrongSlopes | None = None
    shift: WrongShift | None = None


@dataclass(frozen=True, slots=True)
class WrongRepeat:
    """Key/value heads that were repeated along another axis than that of the heads.

    ``axis``: "positions", "channels" or "samples".
    """

    axis: str
    operand: str
    example: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class HeadGroups:
    """Which key/value head each query head meets.

    ``keys`` and ``values``: for each query head, in the order of their channels, the number of its
    key and value head, in the order of theirs. ``order``: "blocked" (neighbours share), "tiled"
    (every n-th shares), "single" (one for all), "each" (one each) or "other". ``span``: where the
    heads are repeated.
    """

    num_heads: int
    num_kv_heads: int
    keys: tuple[int, ...]
    values: tuple[int, ...]
    order: str
    span: Span | None
    value_span: Span | None = None
    repeat: WrongRepeat | None = None


@dataclass(frozen=True, slots=True)
class Pairing:
    """Whether each value comes from the position of its key.

    ``slot``: the first key of which that is not so, made from position ``key``, its value from
    position ``value``. ``shift``: by how much all values are displaced, round the end, None where that
    differs. ``moved``: which of the two is out of order, "k" or "v", and ``span`` where.
    """

    paired: bool
    slot: int = 0
    key: int = 0
    value: int = 0
    shift: int | None = None
    moved: str = "v"
    span: Span | None = None
