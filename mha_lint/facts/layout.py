"""Head split and head merge: what varies along the rows and the features, by provenance."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.dealing import redealt
from mha_lint.facts.heads import input_head_axes, shared_head_axes
from mha_lint.facts.output import OutputPath
from mha_lint.facts.places import span_of
from mha_lint.model.facts import Fact, Kind, Known, Layout, LayoutKind, NotApplicable, Unknown
from mha_lint.model.source import Span
from mha_lint.sites.dependence import is_number, op, shape
from mha_lint.sites.operand import Operand
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source
from mha_lint.sites.trace import Trace, trace, varies_along


def measure_split(bench: Bench, site: Site, which: str) -> Fact[Layout]:
    """Return how the head split lays out the operand `which` ("q", "k" or "v")."""
    if site.kind in (Kind.LINEAR, Kind.CHANNEL):
        return NotApplicable(f"{site.kind} attention is laid out otherwise on purpose")
    facts = [_split_of(bench, member, which) for member in site.all]
    wrong = [f for f in facts if isinstance(f, Known) and f.value.kind is not LayoutKind.RIGHT]
    return wrong[0] if wrong else facts[0]


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
    words = _words(bench, operand, source)
    rows = words(operand.rows)
    features = words(operand.features)
    culprit = _culprit(bench, operand, source, traced)
    over_heads = not operand.position_axes and not _permuted(bench, operand, source)
    span = span_of(site.score.node if over_heads else culprit)
    if source.kind == "context":
        return NotApplicable(f"{which} is another attention's result")
    mixed = _upstream_mixed(bench, operand, source)
    torn = [a for a in operand.features if "positions" in words((a,))]
    if len(operand.features) > 1:
        # A score may sum over whole rows of an alignment too; no axis may hold both.
        torn = [a for a in torn if "channels" in words((a,))]
    if torn or ("positions" in rows and "channels" in rows):
        return Known(
            Layout(
                LayoutKind.SCRAMBLED, which, rows, features, _example(operand, source, traced), span
            )
        )
    if mixed is not None:
        return Known(Layout(LayoutKind.SCRAMBLED, which, rows, features, mixed[0], mixed[1]))
    count = 1
    for axis in operand.rows:
        count *= traced.responds.shape[axis]
    if "positions" not in rows and "channels" in rows and count > 1 and source.kind != "input":
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
        op(n) in ("permute", "transpose", "movedim", "swapaxes") and not _swaps_last(bench, n)
        for n in path
    )


def _swaps_last(bench: Bench, node: Node) -> bool:
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
        whole = [n for n in ordering if not _swaps_last(bench, n)]
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
    if redealt(traced, origin.data_axes, tuple(over)):
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
        if redealt(traced, origin.data_axes, tuple(axes)):
            return node
    return end


def measure_merge(
    bench: Bench, site: Site, path: OutputPath, splits: tuple[Fact[Layout], ...]
) -> Fact[Layout]:
    """Return whether one output vector gathers the heads of one token."""
    if site.kind in (Kind.LINEAR, Kind.CHANNEL) or site.score is None or site.q is None:
        return NotApplicable("only multi-head attention over positions merges heads")
    if any(isinstance(s, Known) and s.value.kind is not LayoutKind.RIGHT for s in splits):
        return NotApplicable("the head split is wrong already, and the merge answers to it")
    facts = [_merge_of(bench, member, path) for member in site.all]
    wrong = [f for f in facts if isinstance(f, Known) and f.value.kind is not LayoutKind.RIGHT]
    return wrong[0] if wrong else facts[0]


def _merge_of(bench: Bench, site: Site, path: OutputPath) -> Fact[Layout]:
    if not path.features or not is_number(bench.recording, path.merged):
        return Unknown("what the context is merged into is not known")
    traced = trace(bench.replay, site.context, path.merged)
    if not bool(traced.responds.any()):
        return Unknown("the merged tensor does not move with the context")
    labels = site.value.out_labels
    free = site.value.free(site.weights_left)
    row_axes = [i for i, x in enumerate(labels) if x is not None and x in free and _is_row(site, x)]
    sample_axes = _sample_axes(bench, site)
    axes = [a for a in (*row_axes, *sample_axes) if traced.shape[a] > 1]
    if not all(traced.clean[a] for a in axes):
        return Unknown("positions are mixed between the context and the output projection")
    span = span_of(_merge_culprit(bench, site, path, row_axes))
    for axis in row_axes:
        if any(varies_along(traced.index[axis], f) for f in path.features):
            example = _merge_example(traced, row_axes, path)
            return Known(
                Layout(
                    LayoutKind.SCRAMBLED,
                    "context",
                    ("positions", "heads"),
                    ("positions",),
                    example,
                    span,
                )
            )
    ids = _samples(bench, site, sample_axes)
    if ids is not None:
        flat = _flat(traced, axes=range(len(traced.shape)))
        sample = torch.where(traced.responds, ids.reshape(-1)[flat], torch.full_like(flat, -1))
        if any(varies_along(sample, f) for f in path.features):
            example = "one output vector gathers heads of several samples"
            return Known(
                Layout(
                    LayoutKind.MIXED_SAMPLES, "context", ("samples",), ("samples",), example, span
                )
            )
    reduced = _without_features(traced, path.features)
    outer = tuple(a for a in range(reduced.responds.dim()) if a not in path.features)
    if redealt(reduced, tuple(axes), outer):
        example = "a plain view deals the output vectors out anew: sample and position mix"
        return Known(
            Layout(
                LayoutKind.SCRAMBLED, "context", ("positions", "samples"), ("heads",), example, span
            )
        )
    return Known(Layout(LayoutKind.RIGHT, "context", ("positions",), ("heads",), "", span))


def _without_features(traced: Trace, features: tuple[int, ...]) -> Trace:
    """Return `traced` with one entry left along the feature axes, where all agree."""
    index = tuple(i.amax(features, keepdim=True) for i in traced.index)
    responds = traced.responds.to(torch.int8).amax(features, keepdim=True).bool()
    return Trace(traced.shape, index, traced.clean, responds, None)


def _flat(traced: Trace, axes: range) -> Tensor:
    flat = torch.zeros_like(traced.index[0])
    for axis in axes:
        flat = flat * traced.shape[axis] + traced.index[axis].clamp(min=0)
    return flat


def _is_row(site: Site, label: int) -> bool:
    """Return whether a free label of the weights follows the scores' rows."""
    weights, labels = site.value.side(site.weights_left)
    del weights
    axis = labels.index(label)
    return any(varies_along(site.origin[a], axis) for a in site.row_axes)


def _sample_axes(bench: Bench, site: Site) -> list[int]:
    """Return the axes of the context along which V's samples vary."""
    _, labels = site.value.side(not site.weights_left)
    out: list[int] = []
    heads = set(shared_head_axes(bench, site.v)) | set(input_head_axes(site.v))
    for axis, label in enumerate(site.value.out_labels):
        shared = label is not None and label in labels and label in site.value.shared
        if shared and site.v.varies[labels.index(label)].data - heads:
            out.append(axis)
    return out


def _samples(bench: Bench, site: Site, sample_axes: list[int]) -> Tensor | None:
    """Return for each element of the context which sample it belongs to, told by V's source."""
    source, traced = site.v.source, site.v.trace
    if source is None or traced is None or source.kind == "learned":
        return None
    heads = set(shared_head_axes(bench, site.v)) | set(input_head_axes(site.v))
    batch = [
        a for a in source.data_axes
        if a not in site.v.position_axes and a not in heads and traced.shape[a] > 1
    ]  # fmt: skip
    if not batch or not all(traced.clean[a] for a in batch):
        return None
    from mha_lint.facts.output import _by_labels

    _, labels = site.value.side(not site.weights_left)
    ids = torch.zeros_like(traced.index[0])
    for axis in batch:
        ids = ids * traced.shape[axis] + traced.index[axis].clamp(min=0)
    drop = tuple(i for i, x in enumerate(labels) if x in site.value.summed)
    return _by_labels(
        ids, labels, site.value.out_labels, shape(bench.recording, site.context), drop
    )


def _merge_example(traced: Trace, row_axes: list[int], path: OutputPath) -> str:
    place = [0] * traced.responds.dim()
    feature = path.features[-1]
    seen: list[int] = []
    for channel in range(traced.responds.shape[feature]):
        place[feature] = channel
        row = int(traced.index[row_axes[0]][tuple(place)])
        if row not in seen:
            seen.append(row)
    listed = ", ".join(str(s) for s in seen[:4])
    return f"the first output vector gathers the queries {listed}"


def _ordering_before(bench: Bench, nodes: list[Node], view: Node) -> Node:
    """Return the permutation that prepared `view` wrongly, or `view` where nothing was permuted."""
    before = nodes[: nodes.index(view)]
    last_view = max(
        (i for i, n in enumerate(before) if op(n) in ("view", "reshape", "unflatten")), default=-1
    )
    ordering = [
        n for n in before[last_view + 1 :]
        if op(n) in ("permute", "transpose", "movedim", "swapaxes") and not _swaps_last(bench, n)
    ]  # fmt: skip
    return ordering[-1] if ordering else view


def _merge_culprit(bench: Bench, site: Site, path: OutputPath, row_axes: list[int]) -> Node:
    """Return the node at which positions and heads first share an axis, else the merge itself."""
    nodes = [
        n
        for n in bench.dependence.between(site.context, path.merged)
        if is_number(bench.recording, n)
    ]
    for node in nodes:
        traced = trace(bench.replay, site.context, node)
        others = [a for a in range(len(traced.shape)) if a not in row_axes and traced.clean[a]]
        for axis in range(traced.responds.dim()):
            row = any(traced.clean[a] and varies_along(traced.index[a], axis) for a in row_axes)
            if row and any(varies_along(traced.index[a], axis) for a in others):
                return _ordering_before(bench, nodes, node)
    return nodes[-1] if nodes else site.context
