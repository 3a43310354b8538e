"""The normaliser: which function, over which axes, how often."""

from __future__ import annotations

from math import isclose, prod

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.gain import factor_nodes
from mha_lint.facts.heads import input_head_axes, shared_head_axes
from mha_lint.facts.later import LINEAR, RENORMALISED, later_normalisers, uneven_sums
from mha_lint.facts.output import OutputPath
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Fact, Kind, Known, Normaliser, NotApplicable, Unknown
from mha_lint.sites.dependence import is_number, op, operands, shape
from mha_lint.sites.site import Site
from mha_lint.sites.trace import HIDDEN, distinct, trace, varies_along


def axis_roles(bench: Bench, site: Site) -> dict[int, str]:
    """Return what each axis of the scores is: "keys", "queries", "heads" or "batch"."""
    roles: dict[int, str] = dict.fromkeys(site.key_axes, "keys") | dict.fromkeys(
        site.row_axes, "queries"
    )
    if site.score is None or site.q is None or site.k is None:
        return roles | dict.fromkeys(site.group_axes, "batch")
    for axis in site.group_axes:
        label = site.score.out_labels[axis]
        roles[axis] = "batch"
        for operand, left in ((site.q, not site.key_left), (site.k, site.key_left)):
            _, labels = site.score.side(left)
            if label in labels and label is not None and operand.source is not None:
                varies = operand.varies[labels.index(label)]
                heads = {*shared_head_axes(bench, operand), *input_head_axes(operand)}
                if (varies.channels and not varies.data) or (varies.data and varies.data <= heads):
                    roles[axis] = "heads"
                elif varies.channels:
                    roles[axis] = "batch*heads"
    return roles


def axis_names(bench: Bench, site: Site, rank: int, to_native: list[set[int]]) -> str:
    """Return the shape of the normaliser's input in words, "(B, h, T_q, T_k)"."""
    word = {"keys": "T_k", "queries": "T_q", "heads": "h", "batch": "B", "batch*heads": "B*h"}
    roles = axis_roles(bench, site)
    names: list[str] = []
    for native in range(rank):
        parts = [word[roles[a]] for a in sorted(to_native[native]) if a in roles]
        names.append("*".join(dict.fromkeys(parts)) or "1")
    return "(" + ", ".join(names) + ")"


@unless_data_decides
def measure_normaliser(bench: Bench, site: Site, path: OutputPath) -> Fact[Normaliser]:
    """Return what normalises the scores of `site`, or the context on its `path`."""
    if site.kind is Kind.LINEAR:
        return NotApplicable("linear attention has no (T_q, T_k) scores to normalise")
    if site.kind is Kind.CHANNEL:
        return NotApplicable("channels attend to channels")
    first = site.all[0]
    found = first.normaliser
    sums = _row_sums(bench, first)
    if found.element not in ("softmax", "coupled"):
        function = "none" if found.element is None else found.element
        why = _normalised_otherwise(bench, first, path, function)
        if why is not None:
            return NotApplicable(why)
        return Known(
            Normaliser(function, row_sums=sums, averaged=_averaged(bench, first)),
            f"the weights of one query sum to {_span(sums)}",
        )
    of_one = _axis_of_one(bench, first)
    changed = _coupled_axes(bench, first)
    if of_one is not None:
        changed = (of_one,), bench.finder.unmasked_index(first)
    if changed is None:
        return Unknown("moving a score changes no weight")
    native_axes, index = changed
    logits = bench.replay.base(found.logits)
    # Where heads are mixed on the way (talking heads) their index says nothing.
    clean = first.to_logits.clean if first.to_logits is not None else (True,) * len(index)
    to_native = [
        {a for a, i in enumerate(index) if clean[a] and varies_along(i, native)}
        if logits.shape[native] > 1
        else set()
        for native in range(logits.dim())
    ]
    roles = axis_roles(bench, first)
    if first.score is None:
        named = tuple(dict.fromkeys(roles.get(a, "batch") for a in native_axes))
    else:
        found_roles = [roles[a] for n in native_axes for a in sorted(to_native[n]) if a in roles]
        named = tuple(dict.fromkeys(word for role in found_roles for word in role.split("*")))
        if of_one is not None:
            named = (roles[of_one],)
        elif _partly(first, native_axes, to_native, logits):
            if not all(clean):
                return Unknown("the scores are mixed with each other before the softmax")
            named = ("features",)
    if site.kind is Kind.POOLING and named == ("queries",):
        return NotApplicable("positions are assigned to learned queries, as to a codebook")
    if len(_parallel(bench, first)) > 1:
        return Unknown("several normalisers of the same scores are put together")
    if "keys" in named and len(named) > 1 and _pooled_jointly(bench, first, path):
        return NotApplicable("one distribution over all pairs: both sides are pooled by it")
    function = _function(bench, first, native_axes, sums)
    times, renormalised = later_normalisers(bench, first)
    if named and "keys" not in named and averages_its_share(bench, first):
        return NotApplicable(
            f"the softmax runs over {' and '.join(named)}, and a sum over the keys normalises the"
            " weights after it, as in slot attention"
        )
    names = axis_names(bench, first, logits.dim(), to_native)
    keys = [n for n in range(logits.dim()) if to_native[n] & set(first.key_axes)]
    return Known(
        Normaliser(
            function=function,
            axes=named or ("keys",),
            axis=native_axes,
            shape=names,
            row_sums=sums,
            times=times,
            implicit=bool(found.weights.meta.get("implicit_dim")),
            renormalised=renormalised,
            plain=_is_plain(bench, first),
            uneven=uneven_sums(bench, first),
            contracted_axis=f"axis {keys[0]}" if len(keys) == 1 else "the keys",
        ),
        f"the weights of one query sum to {_span(sums)}",
    )


def _parallel(bench: Bench, site: Site) -> list[Node]:
    """Return the softmaxes between scores and V of which none feeds another one."""
    path = bench.dependence.between(site.scores, site.weights)
    calls = [n for n in path if op(n) == "softmax"]
    return [
        n
        for n in calls
        if not any(m is not n and m in bench.dependence.ancestors([n]) for m in calls)
    ]


def _pooled_jointly(bench: Bench, site: Site, path: OutputPath) -> bool:
    """Return whether the queries of the context are summed away by the next contraction."""
    found = bench.finder.sources.contraction(path.stop) if path.stop is not None else None
    if found is None or path.stopped_by != "another contraction":
        return False
    labels = site.value.out_labels
    free = site.value.free(site.weights_left)
    rows = [i for i, x in enumerate(labels) if x is not None and x in free]
    for left in (True, False):
        node, sides = found.side(left)
        if site.context not in bench.dependence.ancestors([node]):
            continue
        traced = trace(bench.replay, site.context, node)
        summed = [a for a, x in enumerate(sides) if x in found.summed]
        if any(varies_along(traced.index[r], a) for r in rows for a in summed):
            return True
    return False


def _normalised_otherwise(bench: Bench, site: Site, path: OutputPath, function: str) -> str | None:
    """Return what keeps the weights or the context in bounds where nothing normalises the scores."""
    traced = site.to_logits
    if function == "none" and traced is not None and traced.gain is not None:
        gains = traced.gain[traced.responds].abs()
        if gains.numel() and bool(gains.max() > gains.min() * 1.01):
            return "the scores are weighted by a decay in place of a softmax"
    if _divided_later(bench, site):
        return "the sum of the weights is divided out behind the product with V"
    if _context_is_normed(bench, site, path):
        return "a norm of the context stands in the place of the softmax"
    return None


def _averaged(bench: Bench, site: Site) -> bool:
    """Return whether the weights without a softmax are scaled to the number of keys.

    A factor is one over it, or a summand keeps the sum of a query's weights at one where all scores
    are zero. A single factor that is the scale as well says nothing.
    """
    keys = prod(shape(bench.recording, site.scores)[a] for a in site.key_axes)
    found = [f for _, f, _ in factor_nodes(bench, site.scores, site.weights) if f is not None]
    if any(isclose(f, 1 / keys, rel_tol=1e-5) for f in found):
        width = (
            prod(shape(bench.recording, site.q.node)[a] for a in site.q.features) if site.q else 0
        )
        return len(found) > 1 or not isclose(keys * keys, width)
    if site.normaliser.element is None or keys < 4:
        return False
    at = bench.replay.base(site.scores)
    (weights,) = bench.replay.run([site.weights], {site.scores: torch.zeros_like(at)})
    _, labels = site.value.side(site.weights_left)
    summed = [i for i, x in enumerate(labels) if x in site.value.summed]
    return isclose(float(weights.sum(summed).max()), 1, abs_tol=0.25)


def _divided_later(bench: Bench, site: Site) -> bool:
    """Return whether the context is divided by something made from the same weights, as their sum."""
    below = bench.dependence.descendants([site.context])
    sums = bench.dependence.descendants([site.normaliser.weights])
    return any(
        op(node) in ("div", "mul", "true_divide", "divide", "multiply")
        and any(n in sums and n not in below for n in operands(node))
        for node in below - {site.context}
    )


def _context_is_normed(bench: Bench, site: Site, path: OutputPath) -> bool:
    """Return whether what leaves the site does not grow with the context: a norm acts on it."""
    if path.merged is site.context or not is_number(bench.recording, path.merged):
        return False
    once, at = bench.replay.base(path.merged), bench.replay.base(site.context)
    (twice,) = bench.replay.run([path.merged], {site.context: 2 * at})
    size = once.abs().max().clamp(min=1e-300)
    return bool((twice - once).abs().max() < RENORMALISED * size)


def _span(sums: tuple[float, float] | None) -> str:
    return "an unknown number" if sums is None else f"{sums[0]:.3g} ... {sums[1]:.3g}"


def _row_sums(bench: Bench, site: Site) -> tuple[float, float] | None:
    weights, labels = site.value.side(site.weights_left)
    axes = [i for i, x in enumerate(labels) if x in site.value.summed]
    if not axes:
        return None
    total = bench.replay.base(weights).sum(axes)
    return float(total.min()), float(total.max())


def _is_plain(bench: Bench, site: Site) -> bool:
    """Return whether scores and weights pass nothing but factors and, the scores, summands."""
    found, replay = site.normaliser, bench.replay
    if found.later or site.to_logits is None or not site.to_logits.all_clean:
        return False
    at, once = replay.base(site.scores), replay.base(found.logits)
    none, twice = (replay.run([found.logits], {site.scores: at * by})[0] for by in (0.0, 2.0))
    gap = (twice - once) - (once - none)
    seen = torch.isfinite(gap) & (once.abs() < HIDDEN)
    size = once[seen].abs().max() if bool(seen.any()) else torch.tensor(1.0)
    (left,) = replay.run(
        [site.weights], {found.weights: torch.zeros_like(replay.base(found.weights))}
    )
    return bool((gap[seen].abs() < LINEAR * size.clamp(min=1.0)).all()) and not bool(left.any())


def averages_its_share(bench: Bench, site: Site) -> bool:
    """Return whether a later normaliser couples the keys of each query, whatever the first one did.

    Slots compete for the keys first; each then takes a mean of what it won.
    """
    found = site.normaliser
    if not found.later:
        return False
    weights, labels = site.value.side(site.weights_left)
    summed = [i for i, x in enumerate(labels) if x is not None and x in site.value.summed]
    last = found.later[-1]
    before = found.later[-2] if len(found.later) > 1 else found.weights
    at, base = bench.replay.base(before), bench.replay.base(weights)
    if bool((base < -1e-12).any()) or shape(bench.recording, last) != tuple(at.shape):
        return False
    moved_in = at.clone().reshape(-1)
    spot = int(moved_in.nan_to_num().argmax())
    moved_in[spot] *= 0.5
    (moved,) = bench.replay.run([weights], {before: moved_in.reshape(at.shape)})
    changed = ((moved - base).abs() > 1e-13).nonzero()
    return any(len(distinct(changed[:, a])) > 1 for a in summed)


def _coupled_axes(bench: Bench, site: Site) -> tuple[tuple[int, ...], tuple[Tensor, ...]] | None:
    """Move one input of the normaliser; return the native axes along which outputs change."""
    found = site.normaliser
    at = bench.replay.base(found.logits)
    before = bench.replay.base(found.weights)
    if before.shape != at.shape:
        return None
    if site.to_logits is not None and site.score is not None:
        index = bench.finder.unmasked_index(site)
    else:
        index = tuple(torch.meshgrid(*(torch.arange(n) for n in at.shape), indexing="ij"))
    axes: set[int] = set()
    for spot in _places(at):
        moved_in = at.reshape(-1).clone()
        moved_in[spot] += 0.7
        moved_in = moved_in.reshape(at.shape)
        (after,) = bench.replay.run([found.weights], {found.logits: moved_in})
        changed = ((after - before).abs() > 1e-13) & torch.isfinite(after)
        if int(changed.sum()) < 2:
            continue
        where = changed.nonzero()
        axes |= {a for a in range(at.dim()) if len(distinct(where[:, a])) > 1}
    return (tuple(sorted(axes)), index) if axes else None


def _axis_of_one(bench: Bench, site: Site) -> int | None:
    """Return the axis of a softmax over one entry, where every weight is 1 whatever the scores are."""
    found = site.normaliser
    at = bench.replay.base(found.logits)
    dim = found.weights.kwargs.get("dim")
    if op(found.weights) != "softmax" or not isinstance(dim, int) or at.shape[dim] != 1:
        return None
    if site.score is None or at.shape != bench.replay.base(site.scores).shape:
        return None
    return range(at.dim())[dim]


def _places(at: Tensor) -> list[int]:
    n = at.numel()
    flat = at.reshape(-1)
    seen = torch.isfinite(flat) & (flat.abs() < 1e6)
    known = seen.nonzero().flatten().tolist()
    if not known:
        return [n - 1]
    return sorted({known[0], known[len(known) // 2], known[-1], known[len(known) // 3]})


def _partly(site: Site, native: tuple[int, ...], to_native: list[set[int]], logits: Tensor) -> bool:
    """Return whether the normalised axis is none of the scores' own (a feature axis)."""
    return bool(native) and not any(to_native[n] for n in native if logits.shape[n] > 1)


def _function(
    bench: Bench, site: Site, axes: tuple[int, ...], sums: tuple[float, float] | None
) -> str:
    logits, weights = (
        bench.replay.base(site.normaliser.logits),
        bench.replay.base(site.normaliser.weights),
    )
    if site.normaliser.element == "softmax":
        return "softmax"
    kept = [a for a in range(logits.dim()) if a not in axes]
    flat = logits.permute(*kept, *axes).flatten(len(kept)) if axes else logits
    made = weights.permute(*kept, *axes).flatten(len(kept)) if axes else weights
    # Weights proportional to exp(logits) are a softmax, with or without a sink in the denominator.
    seen = (flat.abs() < 1e6) & (made > 1e-30)
    offset = torch.where(seen, made.clamp(min=1e-300).log() - flat, torch.zeros_like(flat))
    low = torch.where(seen, offset, torch.full_like(offset, float("inf"))).amin(-1)
    high = torch.where(seen, offset, torch.full_like(offset, float("-inf"))).amax(-1)
    known = seen.any(-1)
    if known.any() and bool(((high - low)[known].abs() < 1e-6).all()):
        return "softmax"
    final = bench.replay.base(site.weights)
    if sums is not None and sums[0] >= 0 and sums[1] < 1 + RENORMALISED:
        # Below one where the sum is not all that is divided by (a constant beside it, as a sink).
        return "sum" if bool((final < -1e-12).any()) else "simplex"
    return "sum" if bool((made < -1e-12).any()) else "other"
