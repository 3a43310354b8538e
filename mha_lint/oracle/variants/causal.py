"""Causality: the triangle that is due (or must not be there), against the one in the mask.

Only compared where the contract says whether the site is meant to be causal. A column or row that
is hidden throughout is padding and is left out of the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mha_lint.oracle.fit import Departure, Fit
from mha_lint.oracle.reference import causal_hidden
from mha_lint.oracle.view import SiteView


def fits(view: SiteView, level: int, thorough: bool = False) -> Iterator[Fit]:
    """Yield how the mask stands to the triangle that the contract asks for."""
    due = view.data.causal_due
    if due is None:
        return
    found = list(_right(view, due))
    yield from found
    if level < 1 or (found and not thorough):
        return
    for name, phrase, hidden in patterns(view):
        matters = ~_padding(view)
        same = (view.masked == hidden) | ~matters
        if name.startswith("on") != due and bool(same.all()):
            yield Fit((Departure("mask-causal", name, phrase),), 0.0, _unchanged)


def patterns(view: SiteView) -> Iterator[tuple[str, str, Tensor]]:
    """Yield (name, phrase, hidden (T_q, T_k)) of triangles that a site may hide.

    With T_q unlike T_k the triangle may start at the first query or end at the last one.
    """
    t_q, t_k = view.data.raw.shape[1:]
    device = view.data.raw.device
    yield "off", "no causal mask", torch.zeros(t_q, t_k, dtype=torch.bool, device=device)
    for suffix, shift in _alignments(t_q, t_k).items():
        later = causal_hidden(t_q, t_k, shift=shift, device=device)
        itself = causal_hidden(t_q, t_k, shift=shift - 1, device=device)
        beyond = causal_hidden(t_q, t_k, shift=shift + 1, device=device)
        yield f"on{suffix}", f"a causal mask{suffix}", later
        yield f"inverted{suffix}", f"an inverted causal mask{suffix}", ~itself
        yield f"complement{suffix}", f"the complement of a causal mask{suffix}", ~later
        hides = f"a causal mask that hides the query's own position{suffix}"
        yield f"hides itself{suffix}", hides, itself
        sees = f"a causal mask that leaves the next position visible{suffix}"
        yield f"sees the next{suffix}", sees, beyond


def observed(view: SiteView) -> Departure | None:
    """Return the triangle that the mask is, where the contract does not say which one is due."""
    if view.data.causal_due is not None or not bool(view.masked.any()):
        return None
    matters = ~_padding(view)
    for name, phrase, hidden in patterns(view):
        if name != "off" and bool(((view.masked == hidden) | ~matters).all()):
            return Departure("mask-causal", name, phrase)
    return None


def due_additive(view: SiteView) -> Tensor:
    """Return (G, T_q, T_k) the additive part with the triangle as the contract asks for it."""
    data = view.data
    additive = torch.zeros_like(data.logits) if data.additive is None else data.additive
    t_q, t_k = data.raw.shape[1:]
    later = causal_hidden(t_q, t_k, shift=t_k - t_q, device=additive.device)
    wrongly = view.masked & ~_padding(view) & (~later if data.causal_due else later)
    additive = additive.masked_fill(wrongly, 0.0)
    return additive.masked_fill(later, float("-inf")) if data.causal_due else additive


def _right(view: SiteView, due: bool) -> Iterator[Fit]:
    t_q, t_k = view.data.raw.shape[1:]
    matters = ~_padding(view)
    for shift in _alignments(t_q, t_k).values():
        later = causal_hidden(t_q, t_k, shift=shift, device=view.masked.device)
        full = bool((view.masked | ~later | ~matters).all())
        exact = bool(((view.masked == later) | ~matters).all())
        itself = causal_hidden(t_q, t_k, shift=shift - 1, device=view.masked.device) & ~later
        if due and full and bool((~view.masked & itself).any()):
            yield Fit((), 0.0, _unchanged)
            return
        if not due and exact and bool((later & matters).any()):
            return
    if not due:
        yield Fit((), 0.0, _unchanged)


def _alignments(t_q: int, t_k: int) -> dict[str, int]:
    end = t_k - t_q
    return {"": 0} if end == 0 else {" from the first query": 0, " to the last query": end}


def _padding(view: SiteView) -> Tensor:
    """Return (G, T_q, T_k) bool: keys that no query sees, where some other key is seen."""
    column = view.masked.all(1, keepdim=True)
    return (column & ~view.masked.all(2).all(1)[:, None, None]).expand_as(view.masked)


def _unchanged(additive: Tensor) -> Tensor:
    return additive
