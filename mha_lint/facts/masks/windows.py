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
from mha_lint.facts.masks.steps import steps_of
from mha_lint.facts.places import span_of
from mha_lint.model.mask_fit_facts import Misplaced
from mha_lint.sites.dependence import is_number, op
from mha_lint.sites.site import Site

_RANDOM = frozenset(
    ["rand", "randn", "randint", "randperm", "bernoulli", "rand_like", "multinomial"]
)
LOWEST = 1e6
DIGITS = 1e4
"""What is added counts down to `LOWEST`, and to one part of `DIGITS`: the rest is rounding."""


def mixed_windows(bench: Bench, site: Site, rows: Rows) -> Iterator[Misplaced]:
    """Yield a fixed mask of windows that differs between the samples for one and the same window."""
    samples, places = sample_of(rows.keys), _windows(rows)
    if samples is None or places is None or roots_of(bench, site):
        return
    if any(op(n) in _RANDOM for n in mask_closure(bench, site)):
        return
    levels = levels_of(bench, site)
    if _is_fixed(bench, site):
        size = levels.level.nan_to_num(neginf=-LOWEST).clamp(min=-LOWEST, max=LOWEST)
        patterns = _numbered((size * DIGITS).round().flatten(1))
    else:
        patterns = _numbered(levels.visible.flatten(1))
    heads = levels.group.heads
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


def _is_fixed(bench: Bench, site: Site) -> bool:
    """Return whether what joins the scores is the same for all data: then its numbers count too.

    A mask between windows is often a soft one (-100).
    """
    closure = mask_closure(bench, site)
    above = [n for n in closure if n.op == "placeholder"]
    if not above:
        return True
    if not all(is_number(bench.recording, n) for n in above):
        return False
    replay, generator = bench.replay, torch.Generator().manual_seed(3)
    sides = [n for step in steps_of(bench, site) for n in step.sides]
    moved = {
        n: at + torch.rand(at.shape, generator=generator, dtype=at.dtype)
        for n in above
        for at in (replay.base(n),)
    }
    after = replay.run(sides, moved)
    return all(torch.equal(replay.base(n), v) for n, v in zip(sides, after, strict=True))


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
