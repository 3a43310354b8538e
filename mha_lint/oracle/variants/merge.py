"""Merge: from the context of each group back to one vector for each position.

Right is whatever puts the context rows of one sample and position, all its heads, side by side in
a fixed order of channels. A split that is wrong names its rows wrongly too; then both its own
naming (the inverse reshape) and the usual one are accepted, for the fault is the split's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations

import torch
from torch import Tensor

from mha_lint.oracle.closeness import RELATIVE, difference, magnitude
from mha_lint.oracle.fit import Departure, Fit, unique
from mha_lint.oracle.gather import gather_from
from mha_lint.oracle.variants import operands
from mha_lint.oracle.view import SiteView

KNOWN = {
    "(B, h, T, d)": ("reshape without transpose", "heads merged by a reshape without transpose"),
    "(h, B, T, d)": ("heads first, read as batch first", "heads merged as if the batch came first"),
}


def fits(view: SiteView, level: int, thorough: bool = False) -> Iterator[Fit]:
    """Yield how the merged tensor comes from the site's own context, up to `level` departures."""
    if view.data.merged is None:
        return
    found = list(_right(view, view.data.merged))
    yield from found
    if level < 1 or (found and not thorough):
        return
    yield from unique(_wrong(view, view.data.merged, thorough))


def _right(view: SiteView, merged: Tensor) -> Iterator[Fit]:
    for order in _orders(view, merged):
        candidate = view.data.context.flatten()[order]
        yield from _arranged(candidate, merged, order)
        return_now = _fixed_channels(candidate, merged)
        if return_now is not None:
            yield from _arranged(candidate[..., return_now], merged, order[..., return_now])


def _arranged(candidate: Tensor, merged: Tensor, order: Tensor) -> Iterator[Fit]:
    left = difference(merged, candidate)
    if left <= RELATIVE * magnitude(merged):
        yield Fit((), left, partial(_take, index=order, shape=merged.shape))


def _orders(view: SiteView, merged: Tensor) -> Iterator[Tensor]:
    """Yield (B, T, C') of element numbers of the context: arrangements that count as right."""
    context = view.data.context
    g, t, d = context.shape
    numbers = torch.arange(context.numel(), device=context.device).view(g, t, d)
    shape = merged.shape
    if numbers.numel() != merged.numel():
        return
    if view.groups is not None:
        side_by_side = view.groups.unfold(numbers).permute(0, 2, 1, 3)
        if view.groups.rows is not None:
            side_by_side = _by_position(view, side_by_side)
        if side_by_side.numel() == merged.numel():
            yield side_by_side.reshape(shape)
        if not view.groups.known and g % view.data.heads == 0:
            yield numbers.view(view.data.heads, -1, t, d).permute(1, 2, 0, 3).reshape(shape)
    inverse = _inverse_of_split(view, numbers)
    if inverse is not None:
        yield inverse.reshape(shape)


def _by_position(view: SiteView, side_by_side: Tensor) -> Tensor:
    """Return the rows (n, T, h, d) in the order of the samples and positions that they are."""
    groups = view.groups
    if groups is None or groups.rows is None:
        return side_by_side
    first = groups.order[:, 0]
    sample, position = groups.rows.sample[first], groups.rows.position[first]
    if sample.shape != side_by_side.shape[:2]:
        return side_by_side
    key = sample * (int(position.max()) + 1) + position
    return side_by_side.flatten(0, 1)[key.flatten().argsort(stable=True)]


def _inverse_of_split(view: SiteView, numbers: Tensor) -> Tensor | None:
    """Return the context in the order that undoes the split of the queries, if one does."""
    operand = view.data.q
    if view.right("q") is not None or operand.source is None:
        return None
    fit = next(iter(operands.fits(view, 1, letter="q")), None)
    if fit is None or operand.value.shape != numbers.shape:
        return None
    source = operand.source
    places = fit.apply(torch.arange(source.numel(), device=source.device).view(source.shape))
    if places.numel() != source.numel():
        return None
    return numbers.flatten()[places.flatten().argsort()]


def _fixed_channels(candidate: Tensor, merged: Tensor) -> Tensor | None:
    """Return (C',) where each merged channel stands in `candidate`, read off the first position."""
    if candidate.shape != merged.shape:
        return None
    found = gather_from(merged[0, 0], candidate[0, 0])
    if found is None or found.gain != 1.0 or bool(found.index.bincount().max() > 1):
        return None
    return found.index


def _wrong(view: SiteView, merged: Tensor, thorough: bool) -> Iterator[Fit]:
    context = view.data.context
    g, t, d = context.shape
    bound = RELATIVE * magnitude(merged)
    numbers = torch.arange(context.numel(), device=context.device).view(g, t, d)
    if view.groups is not None:
        axes = view.groups.unfold(numbers)
        for order in permutations(range(4)):
            flat = axes.permute(order)
            if flat.numel() != merged.numel():
                continue
            index = flat.reshape(merged.shape)
            left = difference(merged, context.flatten()[index])
            if left <= bound:
                letters = f"({', '.join('BhTd'[axis] for axis in order)})"
                usual = (f"order {letters}", f"heads merged from the axis order {letters}")
                name, phrase = KNOWN.get(letters, usual)
                apply = partial(_take, index=index, shape=merged.shape)
                yield Fit((Departure("merge", name, phrase),), left, apply)
                if not thorough:
                    return
        summed = view.groups.unfold(context).sum(1)
        for name, candidate in (("summed", summed), ("averaged", summed / axes.shape[1])):
            if candidate.shape == merged.shape and difference(merged, candidate) <= bound:
                departure = Departure("merge", f"heads {name}", f"heads {name} in place of joined")
                apply = partial(_pool, view=view, mean=name == "averaged")
                yield Fit((departure,), difference(merged, candidate), apply)
                return
    found = gather_from(merged, context)
    if found is not None and found.gain == 1.0:
        departure = Departure(
            "merge", "another order", "heads and positions merged in another order"
        )
        apply = partial(_take, index=found.index, shape=merged.shape)
        yield Fit((departure,), found.difference, apply)


def _take(context: Tensor, *, index: Tensor, shape: torch.Size) -> Tensor:
    return context.flatten()[index].view(shape)


def _pool(context: Tensor, *, view: SiteView, mean: bool) -> Tensor:
    if view.groups is None:
        raise ValueError("the groups are not known")
    heads = view.groups.unfold(context)
    return heads.mean(1) if mean else heads.sum(1)
