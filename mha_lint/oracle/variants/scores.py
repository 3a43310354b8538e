"""Scores: from the operands to the input of the normaliser.

The gain from q.k to the logits is solved from one entry of each head and verified on all others,
on the entries that no mask has hidden. Its name is looked for among the quantities of the sizes;
the caller keeps the names that hold at both sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from mha_lint.oracle.closeness import RELATIVE, difference, magnitude
from mha_lint.oracle.data import SiteData
from mha_lint.oracle.fit import Departure, Fit
from mha_lint.oracle.layouts import right_operand
from mha_lint.oracle.variants import operands
from mha_lint.oracle.variants.solve import capped_gain, heads_mixed, per_group_gain
from mha_lint.oracle.view import SiteView, product_of

NAMED = 1e-7
"""Relative difference within which a measured gain is a named one (constants in float32 count)."""


def fits(view: SiteView, level: int, thorough: bool = False) -> Iterator[Fit]:
    """Yield how the logits come from the site's operands, up to `level` departures."""
    product: Tensor | None = view.product
    if product is not None and _is_product(view.data, product):
        yield from _from_product(view, product, "qk", (), level, thorough)
        if not thorough:
            return
    if level >= 1:
        for pair, name, product in _other_products(view.data):
            if product is not None and _is_product(view.data, product):
                before = (Departure("roles", name, name),)
                yield from _from_product(view, product, pair, before, level - 1, thorough)


def operand_gain(view: SiteView, letter: str) -> float | None:
    """Return the gain from a projection's output to its operand; None if it cannot be said.

    Through a rotation it is the ratio of norms, if that is the same for every row. An operand
    without a source, and without a reason for that, is taken as it is.
    """
    operand = view.operand(letter)
    if operand.source is None:
        return 1.0 if operand.opaque is None else None
    if operand.opaque is None:
        fit = next(iter(operands.fits(view, 1, letter=letter)), None)
        return fit.scale if fit is not None and isinstance(fit.scale, float) else None
    split = right_operand(operand, view.data.heads)
    if split is None or split.numel() != operand.value.numel():
        return None
    own = operand.value.norm(dim=-1)
    norms = split.norm(dim=-1).reshape(own.shape)
    if not bool((norms > 0).all()):
        return None
    ratio = own / norms
    first: float = ratio.flatten()[0].item()
    return first if bool(((ratio - first).abs() <= RELATIVE * first).all()) else None


def _from_product(
    view: SiteView,
    product: Tensor,
    pair: str,
    before: tuple[Departure, ...],
    level: int,
    thorough: bool,
) -> Iterator[Fit]:
    data, free = view.data, ~view.hidden
    rest = data.logits if data.additive is None else data.logits - data.additive
    solved = per_group_gain(rest, product, free)
    note, cap = "", None
    if solved is None:
        capped = capped_gain(rest, product, free)
        if capped is not None:
            solved, cap = capped
            note = f"scores are capped at {cap:.4g}"
    if solved is not None:
        apply = partial(_scaled, pair=pair, gain=solved[0], cap=cap)
        yield from _named(view, solved, apply, before, note, level, thorough)
    elif not before:
        mixed = heads_mixed(view, rest, product, free)
        if mixed is not None:
            yield Fit(
                (),
                mixed[1],
                partial(_mixed, view=view, mix=mixed[0]),
                note="heads are mixed before the normaliser",
            )


def _named(
    view: SiteView,
    solved: tuple[Tensor, float],
    apply: Callable[..., Tensor],
    before: tuple[Departure, ...],
    note: str,
    level: int,
    thorough: bool,
) -> Iterator[Fit]:
    """Yield the readings of a verified gain: the due one, or each name that it can have."""
    gain, left = solved
    due = view.data.expected_scale
    total = total_gain(view, gain)
    if due is None or total is None or bool(((total - due).abs() <= NAMED * abs(due)).all()):
        yield Fit(before, left, apply, note=note, scale=total)
        if not thorough or total is None:
            return
    if level < 1:
        return
    value: float = total[0].item()
    if not bool(((total - value).abs() <= NAMED * abs(value)).all()):
        departure = Departure("scale", "different in each head", "another scale in each head")
        yield Fit((*before, departure), left, apply, note=note, scale=total)
        return
    for rank, (name, phrase) in enumerate(scale_names(view.data, value)):
        departure = Departure("scale", name, phrase)
        yield Fit((*before, departure), left, apply, note=note, rank=rank, scale=total)


def total_gain(view: SiteView, gain: Tensor) -> Tensor | None:
    """Return `gain` times those of q and k, or None where these are not known."""
    factors = [operand_gain(view, letter) for letter in "qk"]
    known = [factor for factor in factors if factor is not None]
    return gain * math.prod(known) if len(known) == len(factors) else None


def scale_names(data: SiteData, value: float, *, what: str = "scale") -> Iterator[tuple[str, str]]:
    """Yield (name, phrase) of what `value` can be at this size, the likeliest first."""
    for name, named in data.named_scales.items():
        if abs(value - named) <= NAMED * abs(named):
            yield name, "unscaled scores" if name == "1" else f"{what} {name}"
    yield f"constant {value:.4g}", f"{what} {value:.4g}"
    yield "no named quantity", f"another {what} ({value:.4g})"


def _scaled(
    q: Tensor, k: Tensor, v: Tensor, *, pair: str, gain: Tensor, cap: float | None
) -> Tensor:
    chosen = {"q": q, "k": k, "v": v}
    product = torch.einsum("gqd,gkd->gqk", chosen[pair[0]], chosen[pair[1]])
    scaled = product * (gain.view(-1, 1, 1) if len(gain) == len(product) else gain[0])
    return scaled if cap is None else cap * torch.tanh(scaled / cap)


def _mixed(q: Tensor, k: Tensor, v: Tensor, *, view: SiteView, mix: Tensor) -> Tensor:
    if view.groups is None:
        raise ValueError("the groups are not known")
    product = view.groups.unfold(torch.einsum("gqd,gkd->gqk", q, k))
    return view.groups.fold(torch.einsum("njqk,ji->niqk", product, mix))


def _is_product(data: SiteData, product: Tensor) -> bool:
    """Return whether the site's score contraction is `product`, a gain aside."""
    if product.shape != data.raw.shape:
        return False
    if difference(data.raw, product) <= RELATIVE * magnitude(product):
        return True
    everywhere = torch.ones_like(product, dtype=torch.bool)
    return per_group_gain(data.raw, product, everywhere) is not None


def _other_products(data: SiteData) -> Iterator[tuple[str, str, Tensor | None]]:
    q, k, v = data.q.value, data.k.value, data.v.value
    yield "kk", "scores of keys and keys", product_of(k, k)
    yield "qq", "scores of queries and queries", product_of(q, q)
    yield "qv", "scores of queries and values", product_of(q, v)
    yield "vk", "scores of values and keys", product_of(v, k)
    yield "kq", "scores of keys and queries", product_of(k, q)
