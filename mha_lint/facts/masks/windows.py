"""Masks of windows that meet the windows of another sample.

Windows are folded into the batch sample by sample, or window by window; a mask with one slice for
each window must be repeated in the same order. Then the same window of two samples has the same mask.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.effects import sample_of
from mha_lint.facts.masks.held import Rows
from mha_lint.facts.masks.joins import join_of
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.roots import mask_closure, roots_of
from mha_lint.facts.places import span_of
from mha_lint.model.mask_fit_facts import Misplaced
from mha_lint.sites.dependence import op
from mha_lint.sites.site import Site

_RANDOM = frozenset(
    ["rand", "randn", "randint", "randperm", "bernoulli", "rand_like", "multinomial"]
)


def mixed_windows(bench: Bench, site: Site, rows: Rows) -> Iterator[Misplaced]:
    """Yield a fixed mask of windows that differs between the samples for one and the same window."""
    samples, places = sample_of(rows.keys), _windows(rows)
    if samples is None or places is None or roots_of(bench, site):
        return
    if any(op(n) in _RANDOM for n in mask_closure(bench, site)):
        return
    visible = levels_of(bench, site).visible
    patterns = _numbered(visible.flatten(1))
    heads = levels_of(bench, site).group.heads
    found: dict[tuple[int, int], dict[int, int]] = {}
    for g, (b, w, h) in enumerate(
        zip(samples.tolist(), places.tolist(), heads.tolist(), strict=True)
    ):
        found.setdefault((w, h), {})[b] = int(patterns[g])
    each = {w for w, _ in found}
    if len(each) < 2 or len(set(patterns.tolist())) > len(each):
        return
    odd = [(w, by) for (w, _), by in found.items() if len(set(by.values())) > 1]
    if not odd or any(len(by) < 2 for by in found.values()):
        return
    window, by = odd[0]
    first, second = sorted(by)[:2]
    join = join_of(bench, site, None)
    yield Misplaced(
        "samples",
        "the mask of the windows",
        f"window {sorted(each).index(window)} hides other keys in sample {first} than in sample"
        f" {second}, though the mask does not depend on the samples: windows and samples are folded"
        " in another order than the mask is repeated",
        True,
        span_of(join),
    )


def _windows(rows: Rows) -> Tensor | None:
    """Return (G,) a number for each set of positions that the keys of a group hold."""
    for held in rows.keys:
        if held.along and bool((held.positions >= 0).all()):
            return _numbered(held.positions)
    return None


def _numbered(values: Tensor) -> Tensor:
    """Return (G,) equal numbers for equal rows of `values`."""
    _, numbers = torch.unique(values, dim=0, return_inverse=True)
    return torch.as_tensor(numbers)
