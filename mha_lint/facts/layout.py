"""Head split and head merge: what varies along the rows and the features, by provenance."""

from __future__ import annotations

import dataclasses

from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.dealing import redealt
from mha_lint.facts.heads import shared_head_axes
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.places import span_of
from mha_lint.facts.reduced import before_pool
from mha_lint.facts.selection import placed_by_data
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.facts.witness import split_witness
from mha_lint.model.facts import Fact, Kind, Known, Layout, LayoutKind, NotApplicable, Unknown
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, op, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source
from mha_lint.sites.trace import Trace, depends_on_values, trace, varies_along


@unless_data_decides
def measure_split(bench: Bench, site: Site, which: str) -> Fact[Layout]:
    """Return how the head split lays out the operand `which` ("q", "k" or "v")."""
    if site.kind in (Kind.LINEAR, Kind.CHANNEL):
        return NotApplicable(f"{site.kind} attention is laid out otherwise on purpose")
    facts = [_split_of(bench, member, which) for member in site.all]
    for member, fact in zip(site.all, facts, strict=True):
        if isinstance(fact, Known) and fact.value.kind is not LayoutKind.RIGHT:
            operand: Operand = getattr(member, which)
            witness = split_witness(bench, operand, which)
            seen = dataclasses.replace(fact.value, witness=witness)
            return dataclasses.replace(fact, value=seen)
    return facts[0]


def _split_of(bench: Bench, site: Site, which: str) -> Fact[Layout]:
    operand: Operand | None = {"q": site.q, "k": site.k, "v": site.v}[which]
    if operand is None:
        return NotApplicable("the scores are no product of queries and keys")
    source, traced = operand.source, operand.trace
    if source is None or traced is None:
        return Unknown(f"where {which} comes from is not known")
    if source.kind == "learned":
        return NotApplicable(f"{which} is learned, not made from positions")
    if site.score is None:
        return NotApplicable("without a product of q and k there are no score matrices")
    culprit = _culprit(bench, operand, source, traced)
    over_heads = not operand.position_axes and not _permuted(bench, operand, source)
    span = span_of(site.score.node if over_heads else culprit)
    suspicious = _verdict(bench, operand, source)
    doubtful = suspicious is not LayoutKind.RIGHT
    if doubtful and (
        depends_on_values(bench.replay, source.node, operand.node)
        or placed_by_data(bench, source.node, operand.node)
    ):
        pooled = before_pool(bench, operand, source)
        if pooled is None:
            return Unknown(
                f"where {which} comes from depends on the data itself (a maximum, a selection)"
            )
        operand, traced = pooled
    if doubtful and not _plain(traced):
        # Only an exact map of elements can convict: a rotation, a norm or a pool may look odd.
        earlier = _before_arithmetic(bench, operand, source)
        if earlier is None and _torn_before(bench, operand, source):
            example = "an axis of the split holds positions and channels together"
            both = ("positions", "channels")
            return Known(Layout(LayoutKind.SCRAMBLED, which, both, ("channels",), example, span))
        if earlier is None:
            return Unknown(
                f"{which} is mixed on its way from the projection: positions cannot be traced"
            )
        operand, traced = earlier
    words = _words(bench, operand, source)
    rows = words(operand.rows)
    features = words(operand.features)
    if source.kind == "context":
        return NotApplicable(f"{which} is another attention's result")
    if site.kind is Kind.POOLING and not _positions_in_groups(operand):
        return NotApplicable("pooling may run over channels, or over parts of tokens")
    mixed = _upstream_mixed(bench, operand, source)
    torn = [a for a in operand.features if "positions" in words((a,))]
    if len(operand.features) > 1:
        # A score may sum over whole rows of an alignment too; no axis may hold both.
        torn = [a for a in torn if "channels" in words((a,))]
    if torn and _compares_whole_rows(operand, rows):
        torn = []
    paired = "positions" in rows and "channels" in rows
    if paired and not torn and which == "q" and heads_ask_as_rows(site):
        if _hides(bench, site):
            return Unknown("rows of q are pairs of position and head, and masks are not read there")
        paired = False  # each row is one head of one position, and all of them meet the same keys
    if torn or paired:
        if as_given(operand):
            return NotApplicable(
                f"{which} is given, and which of its axes are channels is not said"
            )
        kind = LayoutKind.SCRAMBLED
        if features == ("positions",) and operand.position_axes == {0} and not _told_apart(operand):
            kind = LayoutKind.OVER_BATCH
        return Known(Layout(kind, which, rows, features, _example(operand, source, traced), span))
    if mixed is not None:
        return Known(Layout(LayoutKind.SCRAMBLED, which, rows, features, mixed[0], mixed[1]))
    count = 1
    for axis in operand.rows:
        count *= traced.responds.shape[axis]
    of_heads = "positions" not in rows and "channels" in rows and count > 1
    if of_heads and source.kind != "input" and not (which == "q" and heads_ask_as_rows(site)):
        return Known(
            Layout(
                LayoutKind.OVER_HEADS,
                which,
                rows,
                features,
                _example(operand, source, traced),
                span,
            )
        )
    return Known(Layout(LayoutKind.RIGHT, which, rows, features, "", span))


def heads_ask_as_rows(site: Site) -> bool:
    """Return whether the heads of one query stand as rows that meet all keys of one shared head."""
    q, k = site.q, site.k
    if q is None or k is None or len(q.rows) != 1:
        return False
    asking, asked = (frozenset().union(*(o.varies[a].data for a in o.groups)) for o in (q, k))
    of_heads = any(k.varies[a].channels for a in k.groups)
    return bool(k.position_axes) and not of_heads and asking == asked


def _hides(bench: Bench, site: Site) -> bool:
    """Return whether some queries do not meet all keys, or it is not known."""
    try:
        return not bool(levels_of(bench, site).visible.all())
    except NotArrangedError:
        return True


def as_given(operand: Operand) -> bool:
    """Return whether each axis is one whole axis of an input: K may be handed over as K^T.

    Samples and heads may be folded into one.
    """
    if operand.source is None or operand.source.kind != "input":
        return False
    axes = [(*v.data, *([-1] if v.channels else [])) for v in operand.varies]
    taken = [x for several in axes for x in several]
    folded = len(operand.groups) == 1 and operand.groups[0] == 0
    alone = [several for a, several in enumerate(axes) if not (folded and a in operand.groups)]
    return all(len(several) < 2 for several in alone) and len(set(taken)) == len(taken)


def _told_apart(operand: Operand) -> bool:
    """Return whether groups hold any part of the source: else samples stand where rows should be."""
    return any(operand.varies[a].data or operand.varies[a].channels for a in operand.groups)


def _positions_in_groups(operand: Operand) -> bool:
    """Return whether heads differ in positions, of which each should hold all."""
    return any(operand.varies[a].data & operand.position_axes for a in operand.groups)


def _plain(traced: Trace) -> bool:
    return traced.all_clean and bool(traced.responds.all())


def _verdict(bench: Bench, operand: Operand, source: Source) -> LayoutKind:
    """Return what rows and features seem to hold, before it is known how well they were traced."""
    words = _words(bench, operand, source)
    rows = words(operand.rows)
    torn = any("positions" in words((a,)) for a in operand.features)
    if torn or ("positions" in rows and "channels" in rows):
        return LayoutKind.SCRAMBLED
    return (
        LayoutKind.RIGHT if "positions" in rows or "channels" not in rows else LayoutKind.OVER_HEADS
    )


def _compares_whole_rows(operand: Operand, rows: tuple[str, ...]) -> bool:
    """Return whether a score sums over a further axis of positions (frames) on purpose.

    Then rows are positions along one axis of the source, features run over another one and the
    channels, and the groups keep the samples apart.
    """
    over = frozenset().union(*(operand.varies[a].data for a in operand.features))
    apart = frozenset().union(*(operand.varies[a].data for a in operand.groups))
    return rows == ("positions",) and not over & operand.position_axes and bool(apart - over)


def _before_arithmetic(
    bench: Bench, operand: Operand, source: Source
) -> tuple[Operand, Trace] | None:
    """Return the operand as it was laid out before a rotation or a norm, which keep the layout."""
    wanted = shape(bench.recording, operand.node)
    for node in reversed(bench.dependence.between(source.node, operand.node)):
        if not is_number(bench.recording, node) or shape(bench.recording, node) != wanted:
            continue
        traced = trace(bench.replay, source.node, node)
        if _plain(traced):
            measure = bench.finder.operands.variations
            varies = measure(source, traced, node, operand.features)
            return dataclasses.replace(operand, varies=varies, trace=traced), traced
    return None


def _torn_before(bench: Bench, operand: Operand, source: Source) -> bool:
    """Return whether the last exact layout before the arithmetic has an axis of both kinds."""
    for node in reversed(bench.dependence.between(source.node, operand.node)):
        if not is_number(bench.recording, node) or len(shape(bench.recording, node)) < 3:
            continue
        traced = trace(bench.replay, source.node, node)
        if _plain(traced):
            return any(
                any(varies_along(traced.index[a], axis) for a in source.data_axes)
                and any(varies_along(traced.index[a], axis) for a in source.channel_axes)
                for axis in range(traced.responds.dim())
            )
    return False


def _words(bench: Bench, operand: Operand, source: Source):  # type: ignore[no-untyped-def]
    shared = set(shared_head_axes(bench, operand))

    def words(axes: tuple[int, ...]) -> tuple[str, ...]:
        data: set[int] = set().union(*(operand.varies[a].data for a in axes))
        channels = any(operand.varies[a].channels for a in axes) or bool(data & shared)
        return tuple(
            word
            for word, yes in (("positions", bool(data - shared)), ("channels", channels))
            if yes
        )

    return words


def _permuted(bench: Bench, operand: Operand, source: Source) -> bool:
    """Return whether a permutation of whole axes stands between projection and operand."""
    path = bench.dependence.between(source.node, operand.node)
    return any(
        op(n) in ("permute", "transpose", "movedim", "swapaxes") and not swaps_last(bench, n)
        for n in path
    )


def swaps_last(bench: Bench, node: Node) -> bool:
    """Return whether `node` only swaps the last two axes, as K^T does."""
    rank = len(shape(bench.recording, node))
    given = [a for a in (*node.args[1:], *node.kwargs.values()) if isinstance(a, int)]
    return op(node) in ("transpose", "swapaxes") and {a % rank for a in given} == {
        rank - 1,
        rank - 2,
    }


def _example(operand: Operand, source: Source, traced: Trace) -> str:
    """Say for one score matrix what its first rows hold."""
    if not operand.rows or not all(
        traced.clean[a] for a in (*source.data_axes, *source.channel_axes)
    ):
        return "rows of one score matrix differ in channels as well as in positions"
    axis = operand.rows[-1]
    place = [0] * traced.responds.dim()
    found: list[str] = []
    for row in range(min(2, traced.responds.shape[axis])):
        place[axis] = row
        at = tuple(place)
        position = ", ".join(
            str(int(traced.index[a][at])) for a in source.data_axes[1:] or source.data_axes
        )
        channel = ", ".join(str(int(traced.index[a][at])) for a in source.channel_axes)
        found.append(f"row {row} begins with channel {channel} of position {position}")
    return "in the first score matrix " + " and ".join(found)


def _culprit(bench: Bench, operand: Operand, source: Source, final: Trace) -> Node:
    """Return the node at which positions and channels first share an axis, else the last layout step."""
    path = [
        n
        for n in bench.dependence.between(source.node, operand.node)
        if is_number(bench.recording, n)
    ]
    wrong = any(v.data and v.channels for v in operand.varies)
    if not wrong and not operand.position_axes:
        # Rows are heads. If a permutation put them there, it is to blame, else the product that
        # takes the axes as they come.
        ordering = [n for n in path if op(n) in ("permute", "transpose", "movedim", "swapaxes")]
        whole = [n for n in ordering if not swaps_last(bench, n)]
        return whole[-1] if whole else operand.node
    del final
    for node in path if wrong else ():
        traced = trace(bench.replay, source.node, node)
        for axis in range(traced.responds.dim()):
            data = any(
                traced.clean[a] and varies_along(traced.index[a], axis) for a in source.data_axes
            )
            channel = any(
                traced.clean[a] and varies_along(traced.index[a], axis) for a in source.channel_axes
            )
            if data and channel:
                return node
    before = [n for n in path if shape(bench.recording, n) == shape(bench.recording, operand.node)]
    return before[0] if before else operand.node


def _upstream_mixed(
    bench: Bench, operand: Operand, source: Source
) -> tuple[str, Span | None] | None:
    """Look before the projection: what it reads may be scrambled already.

    Channels of the input that land on the axis of positions, or tokens of a batch that were
    re-dealt by a plain view: then a token's place depends on sample and position together.
    """
    if source.kind != "projection" or source.reads is None:
        return None
    behind = [
        s
        for s in bench.finder.sources.of(source.reads)
        if s.kind in ("input", "projection", "opaque")
    ]
    if not behind or behind[0].node is source.reads:
        return None
    origin = behind[0]
    if origin.kind == "input" and not bench.recording.values[origin.node].is_floating_point():
        return None
    traced = trace(bench.replay, origin.node, source.reads)
    if not all(traced.clean[a] for a in origin.data_axes) or not bool(traced.responds.all()):
        return None
    out, into = shape(bench.recording, source.node), shape(bench.recording, source.reads)
    if out[:-1] != into[:-1] or source.channel_axes != (len(out) - 1,):
        return None
    shared = set(shared_head_axes(bench, operand))
    over = operand.position_axes - shared
    where = span_of(_first_view(bench, origin, source.reads))
    channel = [a for a in origin.channel_axes if traced.clean[a]]
    feature_axis = traced.responds.dim() - 1
    for axis in over:
        data = any(varies_along(traced.index[a], axis) for a in origin.data_axes)
        if data and any(varies_along(traced.index[a], axis) for a in channel) and shared:
            return "the positions hold channels of the input as well", where
    if (
        any(varies_along(traced.index[a], feature_axis) for a in origin.data_axes)
        and origin.kind == "input"
    ):
        return None  # patches: several positions make one token on purpose
    if redealt(traced, origin.data_axes, tuple(over), (0,)):
        return (
            "a plain view deals the tokens of all samples out anew: sample and position mix",
            where,
        )
    return None


def _first_view(bench: Bench, origin: Source, end: Node) -> Node:
    """Return the node between `origin` and `end` at which tokens stop being separable."""
    for node in bench.dependence.between(origin.node, end):
        if not is_number(bench.recording, node):
            continue
        traced = trace(bench.replay, origin.node, node)
        axes = [
            a for a in range(traced.responds.dim())
            if any(varies_along(traced.index[d], a) for d in origin.data_axes)
        ]  # fmt: skip
        if redealt(traced, origin.data_axes, tuple(axes), (0,)):
            return node
    return end
