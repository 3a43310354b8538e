"""Head merge: does one output vector gather the heads of one token?"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.dealing import redealt
from mha_lint.facts.heads import input_head_axes, shared_head_axes
from mha_lint.facts.layout import heads_ask_as_rows, swaps_last
from mha_lint.facts.output import OutputPath, by_labels
from mha_lint.facts.places import span_of
from mha_lint.facts.selection import placed_by_data
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Kind, Known, Layout, LayoutKind, NotApplicable, Unknown
from mha_lint.sites.dependence import is_number, op, shape
from mha_lint.sites.site import Site
from mha_lint.sites.trace import Trace, depends_on_values, trace, varies_along


@unless_data_decides
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
    if path.map is None and path.stopped_by == "another contraction":
        return NotApplicable("another contraction reads the context: the heads are not merged yet")
    if not path.features or not is_number(bench.recording, path.merged):
        return Unknown("what the context is merged into is not known")
    traced = trace(bench.replay, site.context, path.merged)
    if not bool(traced.responds.any()):
        return Unknown("the merged tensor does not move with the context")
    if not bool(torch.isfinite(bench.replay.base(site.context)).all()):
        return Unknown("the context holds NaN or infinity")
    if not _is_plain(bench, site, path, traced):
        return Unknown("other tensors are put in among the context before it is merged")
    labels = site.value.out_labels
    free = site.value.free(site.weights_left)
    row_axes = [i for i, x in enumerate(labels) if x is not None and x in free and _is_row(site, x)]
    of_samples = sample_axes(bench, site)
    axes = [a for a in (*row_axes, *of_samples) if traced.shape[a] > 1]
    if not all(traced.clean[a] for a in axes):
        return Unknown("positions are mixed between the context and the output projection")
    if any(site.v.varies[a].data for a in site.v.features):
        return Unknown("a value vector holds several positions already")
    if depends_on_values(bench.replay, site.context, path.merged) or placed_by_data(
        bench, site.context, path.merged
    ):
        return Unknown("where the context goes depends on the data itself (a selection of queries)")
    span = span_of(_merge_culprit(bench, site, path, row_axes))
    rows = [_positions(site, traced.index[r], row_axes) for r in row_axes]
    outer_rows = [
        a for a in range(traced.responds.dim())
        if a not in path.features and any(varies_along(r, a) for r in rows)
    ]  # fmt: skip
    across = any(varies_along(r, f) for r in rows for f in path.features)
    of_batch = [
        a for a in range(traced.responds.dim())
        if a not in path.features and traced.responds.shape[a] > 1
        and not any(varies_along(traced.index[s], a) for s in of_samples)
    ]  # fmt: skip
    if across and not outer_rows and not of_batch:
        return NotApplicable("all positions are read out into one vector")
    for row in rows:
        if any(varies_along(row, f) for f in path.features):
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
    if site.v.source is not None and site.v.source.kind == "context":
        # The values are another attention's result: which of its axes hold heads is not known.
        return Known(Layout(LayoutKind.RIGHT, "context", ("positions",), ("heads",), "", span))
    ids = _samples(bench, site, of_samples)
    if ids is not None:
        flat = _flat(traced, axes=range(len(traced.shape)))
        sample = torch.where(traced.responds, ids.reshape(-1)[flat], torch.full_like(flat, -1))
        mixed = any(varies_along(sample, f) for f in path.features)
        if mixed and not _one_sample_each(bench, path):
            example = "one output vector gathers heads of several samples"
            return Known(
                Layout(
                    LayoutKind.MIXED_SAMPLES, "context", ("samples",), ("samples",), example, span
                )
            )
    reduced = _without_features(traced, path.features)
    outer = tuple(a for a in range(reduced.responds.dim()) if a not in path.features)
    if redealt(reduced, tuple(axes), outer, tuple(of_samples)):
        example = "a plain view deals the output vectors out anew: sample and position mix"
        return Known(
            Layout(
                LayoutKind.SCRAMBLED, "context", ("positions", "samples"), ("heads",), example, span
            )
        )
    return Known(Layout(LayoutKind.RIGHT, "context", ("positions",), ("heads",), "", span))


def _positions(site: Site, rows: Tensor, row_axes: list[int]) -> Tensor:
    """Return the query position of each of `rows`: several rows are of one where heads are rows too."""
    q = site.q
    if q is None or q.trace is None or len(row_axes) != 1 or not heads_ask_as_rows(site):
        return rows
    if len(q.rows) != 1 or not all(q.trace.clean[a] for a in q.position_axes):
        return rows
    others = tuple(a for a in range(q.trace.responds.dim()) if a not in q.rows)
    known = torch.zeros(q.trace.responds.shape[q.rows[0]], dtype=torch.long)
    for axis in sorted(q.position_axes):
        index = q.trace.index[axis]
        if any(varies_along(index, a) for a in others):
            return rows  # not the same in each sample, or mixed with channels
        known = known * q.trace.shape[axis] + index.amax(others).clamp(min=0)
    return torch.where(rows >= 0, known[rows.clamp(min=0)], rows)


def _is_plain(bench: Bench, site: Site, path: OutputPath, traced: Trace) -> bool:
    """Return whether what is merged is the context alone, element by element, or with other heads'."""
    held = int(traced.responds.sum())
    if held != prod(traced.shape):
        return False
    if held == traced.responds.numel():
        return True
    above = bench.dependence.ancestors([path.merged])
    others = [m for s in bench.sites for m in s.all if m is not site and m.context in above]
    return bool(others) and _members_around(site, traced)


def _members_around(site: Site, traced: Trace) -> bool:
    """Return whether the rest of the merged tensor can be the other heads of a loop."""
    held = int(traced.responds.sum())
    return traced.responds.numel() > held and traced.responds.numel() % held == 0


def _one_sample_each(bench: Bench, path: OutputPath) -> bool:
    """Return whether each merged vector moves with one sample of some input alone.

    V's source may hold heads among its samples, where a map of blocks stands behind the projection.
    """
    for placeholder in bench.recording.placeholders:
        value = bench.replay.base(placeholder)
        if value.dim() < 2 or not value.is_floating_point() or value.shape[0] < 2:
            continue
        traced = trace(bench.replay, placeholder, path.merged)
        if traced.clean[0] and bool(traced.responds.all()):
            return not any(varies_along(traced.index[0], f) for f in path.features)
    return False


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


def sample_axes(bench: Bench, site: Site) -> list[int]:
    """Return the axes of the context along which V's samples vary."""
    _, labels = site.value.side(not site.weights_left)
    out: list[int] = []
    heads = set(shared_head_axes(bench, site.v)) | set(input_head_axes(site.v))
    for axis, label in enumerate(site.value.out_labels):
        shared = label is not None and label in labels and label in site.value.shared
        if shared and site.v.varies[labels.index(label)].data - heads:
            out.append(axis)
    return out


def _samples(bench: Bench, site: Site, axes: list[int]) -> Tensor | None:
    """Return for each element of the context which sample it belongs to, told by V's source."""
    source, traced = site.v.source, site.v.trace
    if (
        source is None
        or traced is None
        or source.kind == "learned"
        or not bool(traced.responds.all())
    ):
        return None
    heads = set(shared_head_axes(bench, site.v)) | set(input_head_axes(site.v))
    batch = [
        a for a in source.data_axes
        if a not in site.v.position_axes and a not in heads and traced.shape[a] > 1
    ]  # fmt: skip
    if not batch or not all(traced.clean[a] for a in batch):
        return None
    _, labels = site.value.side(not site.weights_left)
    ids = torch.zeros_like(traced.index[0])
    for axis in batch:
        ids = ids * traced.shape[axis] + traced.index[axis].clamp(min=0)
    drop = tuple(i for i, x in enumerate(labels) if x in site.value.summed)
    return by_labels(ids, labels, site.value.out_labels, shape(bench.recording, site.context), drop)


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
        if op(n) in ("permute", "transpose", "movedim", "swapaxes") and not swaps_last(bench, n)
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
