"""What the engine knows of one attention site or one subject; see `mha_lint.model.fact`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from mha_lint.model.causal_facts import CacheCheck, Causality, StateCheck
from mha_lint.model.contract import Contract
from mha_lint.model.fact import Fact as Fact
from mha_lint.model.fact import Known as Known
from mha_lint.model.fact import NotApplicable as NotApplicable
from mha_lint.model.fact import NotApplicableError as NotApplicableError
from mha_lint.model.fact import Unknown as Unknown
from mha_lint.model.fact import UnknownFactError as UnknownFactError
from mha_lint.model.mask_facts import IgnoredMask, Masking
from mha_lint.model.mask_fit_facts import MaskFit, PaddingLeak
from mha_lint.model.numeric_facts import (
    HalfLoss,
    Learning,
    ReturnedWeights,
    RotationLoss,
    Stability,
    TrainingDropout,
)
from mha_lint.model.position_facts import (
    HeadGroups,
    Pairing,
    PositionBias,
    RepeatedPositions,
    Rotary,
)
from mha_lint.model.source import Span
from mha_lint.model.subject_facts import BatchMixing as BatchMixing
from mha_lint.model.subject_facts import SizeFailure as SizeFailure
from mha_lint.model.subject_facts import Truncation as Truncation
from mha_lint.model.subject_facts import UnusedInput as UnusedInput


class Kind(enum.StrEnum):
    """What sort of attention a site computes."""

    SELF = "self"
    CROSS = "cross"
    POOLING = "pooling"
    """Queries are learned, or the scores come from the keys alone."""
    LINEAR = "linear"
    """No (T_q, T_k) scores: keys and values are contracted over positions first."""
    CHANNEL = "channel"
    """Channels attend to channels (cross-covariance attention)."""


@dataclass(frozen=True, slots=True)
class Dims:
    """Sizes of a site, as measured on the recorded call.

    ``d_model`` is the width of what W_Q reads, ``head_dim`` the number of channels contracted in one
    score, ``v_dim`` the channels of one head's value, ``batch`` the product of all other axes.
    """

    d_model: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_dim: int
    t_q: int
    t_k: int
    batch: int


@dataclass(frozen=True, slots=True)
class Scale:
    """The total gain from q.k (projection outputs) to the input of the normaliser.

    ``value`` is the gain of one head when all heads agree, else of the first; ``expected`` is
    head_dim**-0.5. ``named`` is the reading that holds at all measured sizes ("1/sqrt(d_model)",
    "1", "sqrt(head_dim)", ...), ``coincident`` other readings that the sizes at hand cannot tell
    apart. ``normalised``: q or k, or both (``normalised_operands``), are normalised (cosine, qk-norm), so
    no fixed scale is due.
    ``learned``: a Parameter sets it. ``stated``: the value is what the caller passed as a
    constructor argument, attribute or config entry of that name. ``folded``:
    how much smaller W_q or W_k starts where that makes up for the scale, else None. ``init_ratio``: how
    much larger W_q starts than W_k, each for the width that it reads.
    ``terms``: score contractions added up (DeBERTa 3). ``after``: gain applied to the weights
    after the normaliser (1.0 when there is none). ``factors``: each place that scales, in order.
    """

    value: float
    expected: float
    named: str | None
    coincident: tuple[str, ...] = ()
    per_head: tuple[float, ...] = ()
    right: bool = False
    normalised: bool = False
    normalised_operands: tuple[str, ...] = ()
    learned: bool = False
    stated: str | None = None
    follows_size: bool | None = None
    folded: float | None = None
    init_ratio: float | None = None
    terms: int = 1
    after: float = 1.0
    after_named: str | None = None
    learned_bias: bool = False
    """A learned bias is added to the scores, as T5 does, which folds its scale into the weights."""
    factors: tuple[ScaleFactor, ...] = ()


@dataclass(frozen=True, slots=True)
class ScaleFactor:
    """One place where q, k or the scores are multiplied by a constant."""

    factor: float
    on: str
    """"q", "k" or "scores"."""
    span: Span


@dataclass(frozen=True, slots=True)
class Normaliser:
    """What stands between scores and value contraction.

    ``function``: "softmax", "simplex" (positive weights that sum to one by another function),
    "sigmoid", "relu", "softplus", "sum", "none", "other". ``axes``: the names of the normalised axes
    among "keys", "queries", "heads", "batch", "features". ``axis`` and ``shape`` as a reader sees
    them in the code: axis 2 of "(B, h, T_q, T_k)". ``row_sums``: smallest and largest sum of one
    query's weights over the keys. ``times``: how often the weights are normalised in a row.
    ``renormalised``: a second normaliser only restores sums after masking or top-k. ``averaged``:
    without a softmax, a factor of 1/T_k takes the mean over the keys. ``plain``: but a factor and a
    summand stand between scores and normaliser, but a factor between weights and V. ``uneven``: some
    queries give their keys more than one in all, and others another sum.
    """

    function: str
    axes: tuple[str, ...] = ()
    axis: tuple[int, ...] = ()
    shape: str = ""
    row_sums: tuple[float, float] | None = None
    times: int = 1
    implicit: bool = False
    contracted_axis: str = "keys"
    renormalised: bool = False
    averaged: bool = False
    plain: bool = True
    uneven: bool = False


class LayoutKind(enum.StrEnum):
    """What varies along an axis that should hold one thing only."""

    RIGHT = "right"
    SCRAMBLED = "scrambled"
    """Positions (or samples) and channels vary together."""
    OVER_HEADS = "over-heads"
    """Rows of one score matrix are channels (heads) of one position."""
    OVER_BATCH = "over-batch"
    """Rows of one score matrix are samples."""
    MIXED_SAMPLES = "mixed-samples"
    """One row or one output vector holds channels of several samples."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a head split or head merge lays channels and positions out.

    ``operand``: "q", "k", "v" or "context". ``rows`` and ``features``: what varies along the rows
    and along the contracted axis, among "positions", "channels", "samples". ``example``: one
    sentence with indices that shows it.
    """

    kind: LayoutKind
    operand: str
    rows: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    example: str = ""
    span: Span | None = None
    witness: str = ""
    """What two runs show that differ at one position, where the split is wrong."""


@dataclass(frozen=True, slots=True)
class Projection:
    """One learned linear map on the way to an operand.

    ``name``: qualified parameter name ("q_proj.weight"); ``rows``: the channel range used, for
    fused maps, or None; ``source``: names of the inputs that feed it; ``span``: where it is called.
    ``in_width`` and ``out_width``: its widths. ``input``: an identity of the tensor that it reads.
    ``declared``: where the module assigns it, if that is known.
    """

    name: str
    source: tuple[str, ...]
    span: Span | None
    in_width: int
    out_width: int
    input: str = ""
    channels: tuple[int, ...] | None = None
    declared: Span | None = None
    convolution: bool = False
    """The map is a convolution, as in blocks for feature maps."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Where q, k and v come from.

    ``q``, ``k``, ``v``: the projections nearest to each operand (empty: none, the operand is the
    input itself). ``same``: pairs among "qk", "qv", "kv", "qkv" that read one and the same channels
    of one projection. ``unused``: names of declared or computed projections of the same shape that
    never reach the output. ``heads_share``: operands among "q", "k", "v" whose heads all use one
    weight. ``value_is_key``: the value contraction reads the very tensor that the scores used.
    """

    q: tuple[Projection, ...]
    k: tuple[Projection, ...]
    v: tuple[Projection, ...]
    same: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    heads_share: tuple[str, ...] = ()
    value_is: str = "v"
    """Which operand's projection the values come through: "v", or "k" or "q" when swapped.

    "weights" where the weights themselves go on in the place of what they should sum.
    """
    misfed: tuple[tuple[str, str, str], ...] = ()
    """(operand, argument that it reads, argument of its own name that it should read)."""
    exchanged: str = ""
    """What shows that keys and values stand in each other's place."""
    chained: tuple[tuple[str, str], ...] = ()
    """(operand, other): the projection of the one reads what that of the other has made."""
    residual: tuple[str, ...] = ()
    """The inputs that the states depend on to which the attended ones are added."""


@dataclass(frozen=True, slots=True)
class OutputProjection:
    """The learned map that mixes the concatenated heads.

    ``present``: such a map acts on the context before the residual or the return. ``enclosing``:
    name of the class that holds it when it is not the one that holds the site. ``declared``:
    parameters that look the part, are computed or declared, and never reach the output.
    ``mixes``: one output element of it moves with every head. ``model_width``: the name that the
    constructor gives d_model.
    """

    present: bool
    name: str = ""
    mixes: bool = False
    enclosing: str | None = None
    declared: tuple[str, ...] = ()
    span: Span | None = None
    width: int = 0
    model_width: str = "d_model"


@dataclass(frozen=True, slots=True)
class Stacked:
    """Two linear maps in a row with nothing between: first, second, and where."""

    first: str
    second: str
    operand: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class DropoutUse:
    """A dropout on the path: ``place`` is "scores", "weights", "context" or "output"."""

    place: str
    rate: float
    active_in_eval: bool
    span: Span | None


@dataclass(frozen=True, slots=True)
class BranchScale:
    """The scale on each side of a boolean attribute or argument."""

    flag: str
    here: float
    other: float
    span: Span | None
    other_span: Span | None


@dataclass(frozen=True, slots=True)
class BranchMask:
    """What a site hides on one side of a flag only.

    ``flag``: the state in which the pairs stay visible ("flash=True", "pad_mask given"). ``future``:
    the other side is causal, and here no later position is told from an earlier one. ``pairs``: how
    many (query, key) pairs of one head, at most. ``span``: where attention is computed without the
    mask; ``other_span``: where it is masked. ``apart``: one side is one call of torch and the other
    is not, so that the flag chooses an implementation.
    """

    flag: str
    future: bool
    pairs: int
    span: Span | None
    other_span: Span | None
    apart: bool = False


@dataclass(frozen=True, slots=True)
class SiteInfo:
    """Identity of a site: ``id`` "MHA.0", owning submodule path, kind and the places in source.

    ``spans`` keys: "site", "scores", "scale", "mask", "softmax", "value", "q", "k", "v" (the
    projections), "split_q", "split_k", "split_v", "merge", "output"; where they differ from these:
    "exchange" (the call that takes keys and values), "weights_taken", "overwrite", "call".
    """

    id: str
    module: str
    kind: Kind
    spans: dict[str, Span] = field(default_factory=dict)
    repeated: int = 1
    mask: str = "none"
    owner_class: str = ""

    def at(self, *roles: str) -> Span | None:
        """Return the place of the first of `roles` that is known."""
        return next((self.spans[r] for r in roles if r in self.spans), self.spans.get("site"))


_NOT_MEASURED: Unknown = Unknown("not measured")
_NOTHING_SAID = Contract()


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """The facts of one attention site, each as `mha_lint.facts` measured it."""

    info: SiteInfo
    dims: Fact[Dims] = _NOT_MEASURED
    scale: Fact[Scale] = _NOT_MEASURED
    normaliser: Fact[Normaliser] = _NOT_MEASURED
    split_q: Fact[Layout] = _NOT_MEASURED
    split_k: Fact[Layout] = _NOT_MEASURED
    split_v: Fact[Layout] = _NOT_MEASURED
    merge: Fact[Layout] = _NOT_MEASURED
    roles: Fact[Roles] = _NOT_MEASURED
    output_projection: Fact[OutputProjection] = _NOT_MEASURED
    stacked: Fact[tuple[Stacked, ...]] = _NOT_MEASURED
    dropouts: Fact[tuple[DropoutUse, ...]] = _NOT_MEASURED
    branch_scales: Fact[tuple[BranchScale, ...]] = _NOT_MEASURED
    branch_masks: Fact[tuple[BranchMask, ...]] = _NOT_MEASURED
    overwritten: Fact[tuple[str, ...]] = _NOT_MEASURED
    """Operands whose source in one head is another head's projection of it."""
    masking: Fact[Masking] = _NOT_MEASURED
    mask_fit: Fact[MaskFit] = _NOT_MEASURED
    rotary: Fact[Rotary] = _NOT_MEASURED
    position_bias: Fact[PositionBias] = _NOT_MEASURED
    head_groups: Fact[HeadGroups] = _NOT_MEASURED
    pairing: Fact[Pairing] = _NOT_MEASURED
    stability: Fact[Stability] = _NOT_MEASURED
    returned: Fact[ReturnedWeights] = _NOT_MEASURED
    rotation_loss: Fact[RotationLoss] = _NOT_MEASURED
    half_loss: Fact[HalfLoss] = _NOT_MEASURED
    contract: Contract = _NOTHING_SAID


@dataclass(frozen=True, slots=True)
class SubjectFacts:
    """The facts of a whole subject: what its inputs, parameters and modes do."""

    name: str
    span: Span | None
    sites: tuple[SiteFacts, ...]
    batch: Fact[BatchMixing] = _NOT_MEASURED
    deterministic: Fact[bool] = _NOT_MEASURED
    dropouts: Fact[tuple[DropoutUse, ...]] = _NOT_MEASURED
    unused_inputs: Fact[tuple[UnusedInput, ...]] = _NOT_MEASURED
    unused_modules: Fact[tuple[tuple[str, Span | None], ...]] = _NOT_MEASURED
    """Declared projections and dropouts that never reach the output, with their places."""
    truncation: Fact[Truncation | None] = _NOT_MEASURED
    size_failures: Fact[tuple[SizeFailure, ...]] = _NOT_MEASURED
    crosscheck: Fact[tuple[str, ...]] = _NOT_MEASURED
    """Sentences on mismatches that no known variant explains (MHA901)."""
    ignored_masks: Fact[tuple[IgnoredMask, ...]] = _NOT_MEASURED
    padding: Fact[PaddingLeak | None] = _NOT_MEASURED
    positions: Fact[RepeatedPositions | None] = _NOT_MEASURED
    """Positions to which the same is added, where something is added by position."""
    causality: Fact[Causality] = _NOT_MEASURED
    cache: Fact[CacheCheck] = _NOT_MEASURED
    state: Fact[StateCheck] = _NOT_MEASURED
    training_dropout: Fact[tuple[TrainingDropout, ...]] = _NOT_MEASURED
    learning: Fact[Learning] = _NOT_MEASURED
    contract: Contract = _NOTHING_SAID
