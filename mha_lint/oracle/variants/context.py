"""Context: the weights contracted with the values, over the keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from mha_lint.oracle.closeness import RELATIVE, difference, magnitude
from mha_lint.oracle.fit import Departure, Fit, unique
from mha_lint.oracle.variants.scores import scale_names
from mha_lint.oracle.variants.solve import one_gain
from mha_lint.oracle.view import SiteView


def fits(view: SiteView, level: int, thorough: bool = False) -> Iterator[Fit]:
    """Yield how the context comes from the site's own weights, up to `level` departures."""
    found = list(_contracted(view, view.data.v.value, "keys", ()))
    yield from found
    if level < 1 or (found and not thorough):
        return
    yield from unique(_single(view))


def contract(weights: Tensor, values: Tensor, *, over: str) -> Tensor | None:
    """Return (G, rows, d) of weights (G, T_q, T_k) summed `over` "keys" or "queries", or None."""
    if weights.shape[0] != values.shape[0]:
        return None
    if over == "keys" and weights.shape[2] == values.shape[1]:
        return torch.einsum("gqk,gkd->gqd", weights, values)
    if over == "queries" and weights.shape[1] == values.shape[1]:
        return torch.einsum("gqk,gqd->gkd", weights, values)
    return None


def _single(view: SiteView) -> Iterator[Fit]:
    data = view.data
    axis = Departure(
        "softmax-axis", "contracted over queries", "weights contracted over the query axis"
    )
    yield from _contracted(view, data.v.value, "queries", (axis,))
    for letter, word, other in (("k", "keys", data.k.value), ("q", "queries", data.q.value)):
        name = f"weights times {word}"
        departure = Departure("roles", name, name)
        yield from _contracted(view, other, "keys", (departure,), letter)
    plain = contract(data.weights, data.v.value, over="keys")
    if plain is None or plain.shape != data.context.shape:
        return
    solved = one_gain(data.context, plain, torch.isfinite(data.context))
    if solved is not None:
        gain, left = solved
        for rank, (name, _) in enumerate(scale_names(data, gain)):
            what = f"{gain:.4g}" if name.startswith(("constant", "no named")) else name
            departure = Departure("scale-after", name, f"context multiplied by {what}")
            yield Fit(
                (departure,), left, partial(_apply, over="keys", letter="v", gain=gain), rank=rank
            )


def _contracted(
    view: SiteView, values: Tensor, over: str, departures: tuple[Departure, ...], letter: str = "v"
) -> Iterator[Fit]:
    candidate = contract(view.data.weights, values, over=over)
    if candidate is None:
        return
    left = difference(view.data.context, candidate)
    if left <= RELATIVE * magnitude(view.data.context):
        yield Fit(departures, left, partial(_apply, over=over, letter=letter, gain=1.0))


def _apply(
    weights: Tensor, q: Tensor, k: Tensor, v: Tensor, *, over: str, letter: str, gain: float
) -> Tensor:
    found = contract(weights, {"q": q, "k": k, "v": v}[letter], over=over)
    if found is None:
        raise ValueError("weights and values do not belong together")
    return found * gain
