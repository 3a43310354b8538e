"""Sites whose values are lost: the weights go on in the place of the context, which nothing reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch.fx import Node

from mha_lint.capture import Replay
from mha_lint.model.facts import Kind
from mha_lint.sites.contraction import Contraction
from mha_lint.sites.dependence import Dependence, is_number, is_tensor, stack_of
from mha_lint.sites.site import Site
from mha_lint.sites.source import Sources
from mha_lint.sites.trace import dominant_index, mostly_varies_along, trace, varies_along


def with_lost_values(
    dependence: Dependence,
    sources: Sources,
    replay: Replay,
    site_at: Callable[[Contraction], Site | None],
    others: list[Site],
) -> list[Site]:
    """Return the sites whose context is dead, and whose weights take its place.

    A learned map sums over the keys of the weights as if they were channels; or, where there are no
    `others`, the weights are all that the call returns. Weights that are merely used besides (a
    pointer, a picture of the attention) make no site.
    """
    taken = {s.scores for s in others}
    found: list[Site] = []
    for node in dependence.recording.graph.nodes:
        if node in dependence.live or not sources.is_mixing(node):
            continue
        value = sources.contraction(node)
        site = site_at(value) if value is not None else None
        if site is None or site.kind not in (Kind.SELF, Kind.CROSS) or site.score is None:
            continue
        weights = site.normaliser.weights
        if site.normaliser.element is None or weights not in dependence.live:
            continue
        if site.scores in taken:
            continue
        instead = _map_over_keys(dependence, sources, replay, site)
        if instead is None and not others and _all_that_is_returned(dependence, site):
            instead = dependence.recording.outputs[0]
        if instead is not None:
            found.append(replace(site, instead=instead))
    return found


def _map_over_keys(
    dependence: Dependence, sources: Sources, replay: Replay, site: Site
) -> Node | None:
    """Return the first learned map that sums over the keys of the weights."""
    start = site.normaliser.weights
    region = {start}
    for node in sorted(dependence.descendants([start]) & dependence.live, key=dependence.order.get):  # type: ignore[arg-type]
        if not region & set(node.all_input_nodes) or not is_tensor(dependence.recording, node):
            continue
        if sources.is_mixing(node):
            continue
        found = sources.learned_map(node)
        if found is None:
            region.add(node)
            continue
        contraction = sources.contraction(node)
        data = found[0]
        if contraction is None or data not in region or not is_number(dependence.recording, data):
            continue
        _, labels = contraction.side(contraction.left is data)
        summed = [i for i, x in enumerate(labels) if x is not None and x in contraction.summed]
        if any(_varies(replay, start, data, a, i) for a in _axes_of_keys(site) for i in summed):
            return node
    return None


def _varies(replay: Replay, start: Node, end: Node, axis: int, along: int) -> bool:
    traced = trace(replay, start, end)
    if traced.clean[axis]:
        return varies_along(traced.index[axis], along)
    return mostly_varies_along(dominant_index(replay, start, end, axis), along)  # behind a norm


def _axes_of_keys(site: Site) -> list[int]:
    """Return the axes of the normaliser's output that the keys run along."""
    assert site.to_logits is not None
    index = site.to_logits.index
    rank = index[0].dim() if index else 0
    return [n for n in range(rank) if any(varies_along(index[a], n) for a in site.key_axes)]


def _all_that_is_returned(dependence: Dependence, site: Site) -> bool:
    """Return whether the forward that makes the context returns the weights, and nothing else."""
    outputs = dependence.recording.outputs
    return (
        len(outputs) == 1
        and len(stack_of(site.context)) == 1
        and outputs[0] in (site.normaliser.weights, site.weights)
    )
