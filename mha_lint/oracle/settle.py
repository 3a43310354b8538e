"""One stage at two sizes: the fewest departures that fit both.

At one size readings coincide (at d_model 64, 8 heads and head_dim 8, 1/sqrt(h) is 1/sqrt(d_k)).
So all minimal fits of the first size are kept, and only those survive that fit the second too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from mha_lint.oracle.fit import Departure, Fit, unique
from mha_lint.oracle.variants import (
    causal,
    context,
    merge,
    operands,
    output,
    roles,
    scores,
    weights,
)
from mha_lint.oracle.view import SiteView

Search = Callable[[SiteView, int, bool], Iterator[Fit]]
DEEPEST = 2

SEARCHES: Mapping[str, Search] = {
    **{f"roles:{letter}": partial(roles.fits, letter=letter) for letter in "qkv"},
    **{f"split:{letter}": partial(operands.fits, letter=letter) for letter in "qkv"},
    "causal": causal.fits,
    "scores": scores.fits,
    "weights": weights.fits,
    "context": context.fits,
    "merge": merge.fits,
    "output": output.fits,
}
"""How each step is searched, in the order in which a site takes them."""

STAGE_OF: Mapping[str, str] = {
    **{f"{step}:{letter}": "operands" for step in ("roles", "split") for letter in "qkv"},
    "causal": "scores",
    "scores": "scores",
    "weights": "weights",
    "context": "context",
    "merge": "output",
    "output": "output",
}
"""The stage that a reader is told for each step."""


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """The reading of one step that holds at all sizes: ``first`` and ``second`` are the same one.

    ``others``: readings with equally many departures that hold too.
    """

    step: str
    first: Fit
    second: Fit | None
    others: tuple[tuple[Departure, ...], ...] = ()


def settle(step: str, first: SiteView, second: SiteView | None) -> Settled | None:
    """Return the reading of `step` with the fewest departures at both sizes, or None."""
    search = SEARCHES[step]
    for thorough in (False, True) if second is not None else (False,):
        for level in range(DEEPEST + 1):
            here = sorted(unique(search(first, level, thorough)), key=_preference)
            if not here:
                continue
            if second is None:
                return _chosen(step, here, None)
            there = {fit.identity: fit for fit in unique(search(second, level, thorough))}
            common = [fit for fit in here if fit.identity in there]
            if common:
                return _chosen(step, common, there)
    return None


def _preference(fit: Fit) -> tuple[int, int]:
    return len(fit.departures), fit.rank


def _chosen(
    step: str, fits: list[Fit], there: Mapping[tuple[tuple[str, str], ...], Fit] | None
) -> Settled:
    best, *rest = fits
    others = tuple(
        fit.departures
        for fit in rest
        if len(fit.departures) == len(best.departures)
        and not any(d.name.startswith(("constant", "no named")) for d in fit.departures)
    )
    return Settled(step, best, None if there is None else there[best.identity], others)
