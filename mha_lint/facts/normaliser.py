"""The normaliser: which function, over which axes, how often."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.heads import input_head_axes, shared_head_axes
from mha_lint.model.facts import Fact, Kind, Known, Normaliser, NotApplicable, Unknown
from mha_lint.sites.dependence import op
from mha_lint.sites.site import Site
from mha_lint.sites.trace import distinct, varies_along

LINEAR = 1e-9
"""Relative: doubling the input of a linear map doubles its output to rounding."""


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


def measure_normaliser(bench: Bench, site: Site) -> Fact[Normaliser]:
    """Return what normalises the scores of `site`."""
    if site.kind is Kind.LINEAR:
        return NotApplicable("linear attention has no (T_q, T_k) scores to normalise")
    if site.kind is Kind.CHANNEL:
        return NotApplicable("channels attend to channels")
    first = site.all[0]
    found = first.normaliser
    sums = _row_sums(bench, first)
    if found.element not in ("softmax", "coupled"):
        function = "none" if found.element is None else found.element
        traced = first.to_logits
        if function == "none" and traced is not None and traced.gain is not None:
            gains = traced.gain[traced.responds].abs()
            if gains.numel() and bool(gains.max() > gains.min() * 1.01):
                return NotApplicable("the scores are weighted by a decay in place of a softmax")
        return Known(
            Normaliser(function, row_sums=sums), f"the weights of one query sum to {_span(sums)}"
        )
    changed = _coupled_axes(bench, first)
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
        if _partly(first, native_axes, to_native, logits):
            named = ("features",)
    function = _function(bench, first, native_axes)
    times, renormalised = _later(bench, first)
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
            contracted_axis=f"axis {keys[0]}" if len(keys) == 1 else "the keys",
        ),
        f"the weights of one query sum to {_span(sums)}",
    )


def _span(sums: tuple[float, float] | None) -> str:
    return "an unknown number" if sums is None else f"{sums[0]:.3g} ... {sums[1]:.3g}"


def _row_sums(bench: Bench, site: Site) -> tuple[float, float] | None:
    weights, labels = site.value.side(site.weights_left)
    axes = [i for i, x in enumerate(labels) if x in site.value.summed]
    if not axes:
        return None
    total = bench.replay.base(weights).sum(axes)
    return float(total.min()), float(total.max())


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


def _function(bench: Bench, site: Site, axes: tuple[int, ...]) -> str:
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
    if bool((made < -1e-12).any()):
        return "sum"  # divided by a plain sum, signs and all
    return "softmax" if bool(((high - low)[known].abs() < 1e-6).all()) else "other"


def _weighs(bench: Bench, site: Site, node: Node) -> bool:
    """Return whether `node` holds weights again: a softmax, or what is positive and sums to one."""
    if op(node) in ("softmax", "log_softmax"):
        return True
    value = bench.replay.base(node)
    if value.shape != bench.replay.base(site.normaliser.weights).shape or bool(
        (value < -1e-12).any()
    ):
        return False
    return any(bool(((value.sum(a) - 1).abs() < 1e-6).all()) for a in range(value.dim()))


def _later(bench: Bench, site: Site) -> tuple[int, bool]:
    """Count normalisers: a later coupling that is no renormalisation and no linear map is another."""
    times, renormalised = 1, False
    cut: Node = site.normaliser.weights
    for node in site.normaliser.later:
        at = bench.replay.base(cut)
        once = bench.replay.base(node)
        (twice,) = bench.replay.run([node], {cut: 2 * at})
        size = once.abs().max().clamp(min=1e-300)
        if bool((twice - once).abs().max() < 1e-6 * size):
            renormalised = True
        elif not bool((twice - 2 * once).abs().max() < LINEAR * size) and _weighs(
            bench, site, node
        ):
            times += 1
        cut = node
    if op(site.normaliser.weights) == "log_softmax":
        return times, renormalised
    return times, renormalised
