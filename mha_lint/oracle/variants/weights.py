"""Weights: from the logits to what is contracted with the values.

Due is a softmax over the keys. A slice in which everything is hidden has no softmax; what a site
puts there is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations

import torch
from torch import Tensor

from mha_lint.oracle.closeness import RELATIVE, difference, magnitude
from mha_lint.oracle.fit import Departure, Fit, unique
from mha_lint.oracle.variants import normalisers
from mha_lint.oracle.variants.scores import scale_names
from mha_lint.oracle.variants.solve import heads_mixed, one_gain
from mha_lint.oracle.view import SiteView

Weigh = Callable[[Tensor], Tensor]
AXES = ("batch", "heads", "queries", "keys")
SINGULAR = {"batch": "batch", "heads": "head", "queries": "query", "keys": "key"}
MANY_LEFT = 0.2
"""A mask found in the weights themselves must leave this share of them to prove the rest."""


def fits(view: SiteView, level: int, thorough: bool = False) -> Iterator[Fit]:
    """Yield how the weights come from the site's own logits, up to `level` departures."""
    due = partial(over_axes, view=view, axes=("keys",))
    found = list(_exactly(view, (), due, note=_sink_note(view)))
    found = found or list(_designs(view))
    yield from found
    if level < 1 or (found and not thorough):
        return
    single = list(unique(_single(view, thorough)))
    yield from single
    if level < 2 or (single and not thorough):
        return
    double = list(unique(_double(view, thorough)))
    yield from double
    if not double:
        yield from _mixed(view)


def over_axes(logits: Tensor, *, view: SiteView, axes: tuple[str, ...], times: int = 1) -> Tensor:
    """Return the softmax of (G, T_q, T_k) logits over the named axes together.

    Extra entries of the native layout (sinks) take part in a softmax over the keys. NaN marks
    slices in which everything is hidden.
    """
    native = view.data.native
    if axes == ("keys",) and native is not None and native.full.numel() > native.index.numel():
        along = view.key_axes
        full = native.full.flatten().scatter(0, native.index.flatten(), logits.flatten())
        weights = normalisers.softmax(full.view(native.full.shape), along)
        return weights.flatten()[native.index]
    groups = view.groups
    result = logits
    for _ in range(times):
        if groups is None or not {"batch", "heads"} & set(axes):
            plain = tuple(-1 if axis == "keys" else -2 for axis in axes)
            result = normalisers.softmax(result, plain)
        else:
            numbers = tuple(AXES.index(axis) for axis in axes)
            result = groups.fold(normalisers.softmax(groups.unfold(result), numbers))
    return result


def axis_phrase(axes: tuple[str, ...]) -> str:
    """Return "the query axis" or "the head and key axes together"."""
    words = [SINGULAR[axis] for axis in axes]
    if len(words) == 1:
        return f"the {words[0]} axis"
    return f"the {', '.join(words[:-1])} and {words[-1]} axes together"


def _exactly(
    view: SiteView,
    departures: tuple[Departure, ...],
    weigh: Weigh,
    *,
    note: str = "",
    rank: int = 0,
) -> Iterator[Fit]:
    """Yield `weigh` as a fit when it reproduces the site's weights."""
    weights = view.data.weights
    candidate = weigh(view.data.logits)
    if candidate.shape != weights.shape:
        return
    left = difference(weights, candidate, where=~candidate.isnan() & ~view.dead_rows[..., None])
    if left <= RELATIVE * magnitude(weights):
        yield Fit(departures, left, weigh, note=note, rank=rank)


def _designs(view: SiteView) -> Iterator[Fit]:
    """Yield legitimate designs that differ from the plain softmax over the keys."""
    yield from _exactly(
        view, (), normalisers.quiet_softmax, note="softmax with one more zero logit"
    )
    weights = view.data.weights
    kept = weights != 0
    if not bool(kept.all()) and kept.double().mean().item() >= MANY_LEFT:
        restored = partial(normalisers.renormalised, kept=kept)
        yield from _exactly(view, (), restored, note="softmax renormalised over a part of the keys")
    yield from _exactly(view, (), normalisers.sparsemax, note="sparsemax over the keys")


def _subsets(view: SiteView, thorough: bool) -> Iterator[tuple[str, ...]]:
    """Yield the sets of axes, other than the keys, that could be normalised, smallest first.

    An axis of size one adds nothing to others, so it is left out of sets, unless another size
    (`thorough`) may tell them apart.
    """
    names = AXES if view.groups is not None else ("queries", "keys")
    sizes = dict(zip(("queries", "keys"), view.data.raw.shape[1:], strict=True))
    if view.groups is not None:
        sizes |= dict(zip(("batch", "heads"), view.groups.order.shape, strict=True))
    for count in range(1, len(names) + 1):
        for axes in combinations(names, count):
            distinct = thorough or count == 1 or all(sizes[axis] > 1 for axis in axes)
            if axes != ("keys",) and distinct:
                yield axes


def _bases(view: SiteView, thorough: bool) -> Iterator[tuple[Departure, Weigh]]:
    """Yield each single departure from the softmax over the keys, with its computation."""
    for axes in _subsets(view, thorough):
        phrase = f"softmax over {axis_phrase(axes)}"
        departure = Departure("softmax-axis", " and ".join(axes), phrase)
        yield departure, partial(over_axes, view=view, axes=axes)
    twice = Departure("repeated-softmax", "keys twice", "softmax applied twice over the key axis")
    yield twice, partial(over_axes, view=view, axes=("keys",), times=2)
    for name, weigh in normalisers.OTHERS.items():
        phrase = "no softmax" if name == "none" else f"{name} in place of the softmax"
        yield Departure("normaliser", name, phrase), weigh


def _single(view: SiteView, thorough: bool) -> Iterator[Fit]:
    for rank, (departure, weigh) in enumerate(_bases(view, thorough)):
        yield from _exactly(view, (departure,), weigh, rank=rank)
    due = partial(over_axes, view=view, axes=("keys",))
    yield from _rescaled(view, (), due)
    yield from _masked_after(view)


def _double(view: SiteView, thorough: bool) -> Iterator[Fit]:
    bases = list(_bases(view, thorough))
    for departure, weigh in bases:
        yield from _rescaled(view, (departure,), weigh)
    single = [((axis,), axis) for axis in (AXES if view.groups else AXES[2:])]
    for (first, name), (second, other) in ((a, b) for a in single for b in single):
        if (name, other) == ("keys", "keys"):
            continue
        once = partial(over_axes, view=view, axes=first)
        phrase = f"softmax over {axis_phrase(first)}, then over {axis_phrase(second)}"
        departure = Departure("repeated-softmax", f"{name}, then {other}", phrase)
        yield from _exactly(view, (departure,), partial(_again, first=once, view=view, axes=second))


def _rescaled(view: SiteView, before: tuple[Departure, ...], weigh: Weigh) -> Iterator[Fit]:
    """Yield `weigh` times a constant that is solved; its names are those of a scale."""
    candidate, weights = weigh(view.data.logits), view.data.weights
    if candidate.shape != weights.shape:
        return
    solved = one_gain(weights, candidate, ~candidate.isnan() & ~view.dead_rows[..., None])
    if solved is None or abs(solved[0] - 1) <= RELATIVE:
        return
    gain, left = solved
    times = partial(_times, weigh=weigh, gain=gain)
    for rank, (name, _) in enumerate(scale_names(view.data, gain)):
        what = name.removeprefix("constant ")
        what = f"{gain:.4g}" if name == "no named quantity" else what
        departure = Departure("scale-after", name, f"weights multiplied by {what}")
        yield Fit((*before, departure), left, times, rank=rank)


def _mixed(view: SiteView) -> Iterator[Fit]:
    """Yield softmaxes over the keys whose heads are mixed by a fixed (h, h) map (talking heads)."""
    plain = over_axes(view.data.logits, view=view, axes=("keys",))
    everywhere = ~plain.isnan() & ~view.dead_rows[..., None]
    mixed = heads_mixed(view, view.data.weights, plain, everywhere)
    if mixed is not None:
        apply = partial(_mix, view=view, mix=mixed[0])
        yield Fit((), mixed[1], apply, note="heads are mixed after the softmax")


def _mix(logits: Tensor, *, view: SiteView, mix: Tensor) -> Tensor:
    if view.groups is None:
        raise ValueError("the groups are not known")
    weights = view.groups.unfold(over_axes(logits, view=view, axes=("keys",)))
    return view.groups.fold(torch.einsum("njqk,ji->niqk", weights, mix))


def _masked_after(view: SiteView) -> Iterator[Fit]:
    """Yield a softmax over the keys after which some weights are zeroed or dropped out."""
    weights = view.data.weights
    whole = over_axes(view.data.logits, view=view, axes=("keys",))
    kept = (weights != 0) | (whole == 0)
    share = kept.double().mean().item()
    if bool(kept.all()) or share < MANY_LEFT:
        return
    solved = one_gain(weights, whole, kept & ~whole.isnan() & ~view.dead_rows[..., None])
    if solved is None:
        return
    gain, left = solved
    apply = partial(_kept, kept=kept, gain=gain, view=view)
    if abs(gain - 1) <= RELATIVE:
        phrase = "weights masked after the softmax"
        yield Fit((Departure("mask-after-softmax", "not renormalised", phrase),), left, apply)
    elif gain > 1:
        phrase = f"dropout of {1 - 1 / gain:.2g} on the weights"
        yield Fit((Departure("dropout", f"rate {1 - 1 / gain:.2g}", phrase),), left, apply)


def _sink_note(view: SiteView) -> str:
    native = view.data.native
    if native is None or native.full.numel() <= native.index.numel():
        return ""
    return "the softmax runs over more than the scores (sinks)"


def _again(logits: Tensor, *, first: Weigh, view: SiteView, axes: tuple[str, ...]) -> Tensor:
    return over_axes(first(logits), view=view, axes=axes)


def _times(logits: Tensor, *, weigh: Weigh, gain: float) -> Tensor:
    return weigh(logits) * gain


def _kept(logits: Tensor, *, kept: Tensor, gain: float, view: SiteView) -> Tensor:
    return torch.where(kept, over_axes(logits, view=view, axes=("keys",)) * gain, 0.0)
