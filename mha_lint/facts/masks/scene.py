"""All that acts as a mask at one site, and the weights that it leaves, query by query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.capture.names import RANDOM
from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.biased import beside_learned, mask_beside_learned
from mha_lint.facts.masks.pairs import Pairs, pairs_of
from mha_lint.facts.masks.played import Played, hiding_values, recorded_call
from mha_lint.facts.masks.steps import SAME, Step, measured_steps, steps_of
from mha_lint.sites.dependence import op
from mha_lint.sites.site import Site

HIDDEN = 1e-6
"""A pair whose weight is a smaller share of its row's largest is hidden."""
STRONG = 1e3
"""A number that is put on a pair to hide it, and no bias or score: customary are 1e4 and more."""


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A mask's step, as tables of queries (R) and keys (K).

    ``gain``, ``offset``: see `mha_lint.facts.masks.steps.Step`; ``before``: what it acts on.
    """

    step: Step
    gain: Tensor
    offset: Tensor
    before: Tensor

    @property
    def marks(self) -> Tensor:
        """Return the pairs that the step sets, fills or multiplies away, or adds something to."""
        if self.step.how == "added":
            return self.offset.isnan() | (self.offset.abs() > SAME)
        return self.gain == 0

    @property
    def strong(self) -> Tensor:
        """Return the pairs that the step hides, whatever the scores are."""
        if not self.step.before or self.step.inside:
            return self.gain == 0
        if self.step.how == "multiplied":
            return torch.zeros_like(self.gain, dtype=torch.bool)
        return (self.offset <= -STRONG) & ((self.gain == 0) | (self.step.how == "added"))


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """One site (or member) of the recorded call, with masks that hide something.

    ``final`` (R, K): the weights that meet V, or that the normaliser gives where they are mixed then.
    """

    bench: Bench
    site: Site
    pairs: Pairs
    run: Played
    joins: tuple[Join, ...]
    final: Tensor

    def hidden(self) -> Tensor:
        """Return the pairs (R, K) whose share in the end is nothing beside their row's largest."""
        size = self.final.abs().nan_to_num()
        return size <= HIDDEN * size.amax(-1, keepdim=True)

    def visible(self) -> Tensor:
        """Return the pairs (R, K) that no step hides with a number large enough to do so."""
        out = torch.ones_like(self.final, dtype=torch.bool)
        for join in self.joins:
            out = out & ~join.strong
        return out

    def table(self, node: Node, substitute: Mapping[Node, Tensor]) -> Tensor | None:
        """Return the value of `node` as (R, K) where the nodes in `substitute` have others."""
        (value,) = self.run.run([node], substitute)
        return self.pairs.table(node, value)


def mask_steps(bench: Bench, site: Site) -> list[Step]:
    """Return the steps of `site` at which masks act on all scores, as the bench measures them."""
    pairs = pairs_of(bench, site)
    count = math.prod(pairs.shape) if pairs is not None else 0
    found = [s for s in steps_of(bench, site) if is_mask(bench, s) or beside_learned(bench, s)]
    return [s for s in found if bench.replay.base(s.node).numel() >= count]


def scene_of(bench: Bench, site: Site) -> Scene | None:
    """Return the scene of `site` (a single site or a member), None where pairs are not known."""
    pairs = pairs_of(bench, site)
    if pairs is None:
        return None
    real = recorded_call(bench)
    run = Played(bench, real, {})
    steps = _masks(bench, site, run)
    idle = [side for s in steps if not _acts(s) for side in s.sides]
    ends = [side for s in steps for side in s.sides]
    given = hiding_values(bench, idle, ends) if idle else {}
    if given:
        run = Played(bench, real, given)
        steps = _masks(bench, site, run)
    joins = tuple(j for s in steps if (j := _join(pairs, run, s)) is not None)
    final = pairs.table(site.weights, run.base(site.weights))
    if final is None:  # the difference of two softmaxes, say
        final = pairs.table(site.normaliser.weights, run.base(site.normaliser.weights))
    return None if final is None else Scene(bench, site, pairs, run, joins, final)


def is_mask(bench: Bench, step: Step) -> bool:
    """Return whether what joins the scores at `step` was given or is fixed: nothing learned, or drawn."""
    above = bench.dependence.ancestors(step.sides)
    return not any(bench.dependence.parameters(s) for s in step.sides) and not any(
        op(n) in RANDOM for n in above
    )


def different(values: Tensor) -> Tensor:
    """Return the different numbers in `values`, in order."""
    ordered = values.flatten().sort().values
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def _masks(bench: Bench, site: Site, run: Played) -> list[Step]:
    """Return the steps at which masks act, of sums with a learned bias the mask's part."""
    found: list[Step] = []
    for step in measured_steps(bench, site, run):
        part = step if is_mask(bench, step) else mask_beside_learned(bench, run, step)
        found += [part] if part is not None else []
    return found


def mixed(marks: Tensor) -> Tensor:
    """Return the rows (R,) in which some pairs are marked and some are not."""
    return marks.any(-1) & ~marks.all(-1)


def _acts(step: Step) -> bool:
    """Return whether `step` treats some elements otherwise than others."""
    gain, offset = step.gain.reshape(-1), step.offset.reshape(-1).nan_to_num()
    if not gain.numel():
        return True
    return bool((gain != gain[0]).any()) or bool((offset != offset[0]).any())


def _join(pairs: Pairs, run: Played, step: Step) -> Join | None:
    gain, offset = (pairs.table(step.node, v, step.data) for v in (step.gain, step.offset))
    before = pairs.table(step.data, torch.as_tensor(run.base(step.data)), step.data)
    if gain is None or offset is None or before is None:
        return None
    return Join(step, gain, offset, before)
