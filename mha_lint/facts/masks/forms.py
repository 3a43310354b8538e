"""What looks like a mask over the positions of a site: by type, values, sizes and name."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.pairs import Pairs, Places, pairs_of, places_of
from mha_lint.model.facts import Kind
from mha_lint.sites.dependence import shape
from mha_lint.sites.site import Site

MASK_NAME = re.compile(r"mask|pad|valid|keep|visible|allow|hidden|block|ignor|attend|causal")
LENGTH_NAME = re.compile(r"len|valid|n_|num|count|size")
SOURCE_NAME = re.compile(r"mem|src|source|enc|ctx|context|key|kv|cross|other")
HIDES = 1e3


@dataclass(frozen=True, slots=True)
class Form:
    """``kind``: "bool", "0-1", "additive" or "lengths". ``named``: the name says what it is."""

    kind: str
    named: bool


def form_of(value: Tensor, name: str) -> Form | None:
    """Return the form of `value` as a mask, None where it is none or its name would have to say so."""
    lower = name.lower()
    named = bool(MASK_NAME.search(lower))
    if value.numel() < 2:
        return None
    if value.dtype == torch.bool:
        return Form("bool", named)
    if value.is_complex():
        return None
    if not value.is_floating_point() and value.dim() == 1 and LENGTH_NAME.search(lower):
        return Form("lengths", True) if bool((value > 0).all()) else None
    if not named:
        return None
    if bool(((value == 0) | (value == 1)).all()):
        return Form("0-1", named)
    if value.is_floating_point() and bool(((value == 0) | (value <= -HIDES)).all()):
        return Form("additive", named)
    return None


def sites_of_mask(bench: Bench, value: Tensor, form: Form, name: str) -> list[Site]:
    """Return the sites over whose keys `value` runs; a name of a source means cross-attention."""
    found = [s for s in bench.sites if _fits(bench, s.all[0], value, form, name)]
    across = [s for s in found if s.kind is Kind.CROSS]
    own = [s for s in found if s.kind is not Kind.CROSS]
    if across and own:
        return across if SOURCE_NAME.search(name.lower()) else own
    return found


def _fits(bench: Bench, site: Site, value: Tensor, form: Form, name: str) -> bool:
    if site.kind in (Kind.LINEAR, Kind.CHANNEL):
        return False
    sizes = shape(bench.recording, site.scores)
    t_k = math.prod(sizes[a] for a in site.key_axes)
    t_q = math.prod(sizes[a] for a in site.row_axes)
    own = tuple(n for n in value.shape if n != 1)
    if t_k < 2:
        return False
    if form.kind == "lengths":
        return int(value.max()) <= t_k and (site.kind is not Kind.CROSS or t_q != t_k)
    if (
        len(own) >= 2
        and own[-2:] == (t_q, t_k)
        and (len(own) > 2 or value.dim() == 2 or t_q == t_k)
    ):
        return True
    over_keys = own[-1:] == (t_k,) or math.prod(value.shape[1:]) == t_k or own[:1] == (t_k,)
    if not over_keys:
        return False
    # In cross-attention a mask of the queries has nothing to hide.
    return site.kind is not Kind.CROSS or t_q != t_k or bool(SOURCE_NAME.search(name.lower()))


def hides_already(bench: Bench, site: Site, value: Tensor, hidden: Tensor, pairs: Pairs) -> bool:
    """Return whether what `value` may mean to hide is hidden at `site`, in either convention.

    ``hidden`` (R, K): the pairs that are. A mask that tells no pair from another says nothing.
    """
    held = places_of(pairs)
    truths = value.bool() if not value.is_floating_point() else value <= -HIDES
    if value.is_floating_point() and not bool(truths.any()):
        truths = value.bool()
    if not bool(truths.any()) or bool(truths.all()):
        return False
    for table in _tables(truths, held, hidden):
        for marks in (table, ~table):
            if bool(marks.any()) and not bool((marks & ~hidden).any()):
                return True
    return False


def _tables(truths: Tensor, held: Places | None, hidden: Tensor) -> list[Tensor]:
    """Return the ways to lay `truths` over rows and keys (R, K)."""
    rows, keys = hidden.shape
    own = truths.reshape([n for n in truths.shape if n != 1])
    found: list[Tensor] = []
    if own.dim() == 1 and own.shape[0] == keys:
        found.append(own.expand(rows, keys))
    if own.numel() == rows * keys:
        found.append(own.reshape(rows, keys))
    if held is None:
        return found
    samples = held.samples
    if own.dim() == 2 and own.shape[1] == keys:
        if int(samples.max()) < own.shape[0]:
            found.append(own[samples])
        if bool((held.queries >= 0).all()) and int(held.queries.max()) < own.shape[0]:
            found.append(own[held.queries])
    if own.dim() == 2 and own.shape[0] == keys and int(samples.max()) < own.shape[1]:
        found.append(own.T[samples])
    if own.dim() == 3 and own.shape[2] == keys and bool((held.queries >= 0).all()):
        inside = int(samples.max()) < own.shape[0] and int(held.queries.max()) < own.shape[1]
        found += [own[samples, held.queries]] if inside else []
    return found


def hidden_pairs(bench: Bench, site: Site) -> tuple[Tensor, Pairs] | None:
    """Return the pairs (R, K) without any weight in the recorded call."""
    pairs = pairs_of(bench, site)
    if pairs is None:
        return None
    final = pairs.table(site.weights, bench.recording.values[site.weights])
    return None if final is None else (final == 0, pairs)


def built_form(value: Tensor, *, given: bool) -> Form | None:
    """Return the form of a mask that was built: truth values, 0 and 1, or 0 and a large negative.

    ``given``: it was made from arguments, so that it may hide nothing in this call.
    """
    if not value.numel():
        return None  # no picture, no word: a mask of nothing
    first = value.reshape(-1)[:1]
    if bool((value == first).all()) and not (given and value.dtype == torch.bool):
        return None
    form = form_of(value, "mask")
    return form if form is not None and (form.kind != "0-1" or value.is_floating_point()) else None


def another_mask(value: Tensor, form: Form) -> Tensor:
    """Return a mask of the same form that hides something else."""
    if form.kind == "lengths":
        return (value // 2).clamp(min=1)
    generator = torch.Generator().manual_seed(29)
    other = torch.rand(value.shape, generator=generator) < 0.5
    if value.dim():
        other.select(-1, 0).fill_(False)
    if form.kind == "bool":
        return value ^ other
    if form.kind == "0-1":
        return torch.where(other, 1 - value, value)
    hides = torch.full_like(value, -1e4)
    return torch.where(other, torch.where(value == 0, hides, torch.zeros_like(value)), value)
