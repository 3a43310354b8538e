"""Whether what is hidden at one site is what should be: polarity, axis, source, direction."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.aliases import in_one_call
from mha_lint.facts.masks.alignment import misplaced_masks
from mha_lint.facts.masks.direction import causal_cross, unwanted_triangle
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.polarity import closed_wrongly, inversions
from mha_lint.facts.masks.roots import mask_closure, roots_of
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Fact, Kind, Known, NotApplicable, Unknown
from mha_lint.model.mask_fit_facts import MaskFit
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject


def measure_mask_fit(
    subject: Subject, bench: Bench, site: Site, contract: Contract
) -> Fact[MaskFit]:
    """Return how what `site` hides fits the masks that were given and what is meant."""
    return _measured(bench, subject, site, contract)


@unless_data_decides
def _measured(bench: Bench, subject: Subject, site: Site, contract: Contract) -> Fact[MaskFit]:
    bench, site = in_one_call(subject, bench, site)
    first = site.all[0]
    if first.score is None:
        closed = tuple(closed_wrongly(subject, bench, first, contract))
        if closed:
            return Known(MaskFit(inverted=closed), "the masks were turned over as a whole")
        return NotApplicable("the scores are no product of queries and keys")
    if first.kind in (Kind.LINEAR, Kind.CHANNEL, Kind.POOLING):
        return NotApplicable(f"{first.kind} attention has no pairs of a query and a key")
    if not mask_closure(bench, first):
        return NotApplicable("nothing stands beside the scores")
    try:
        levels = levels_of(bench, first)
    except NotArrangedError as error:
        if not roots_of(bench, first):
            return NotApplicable("no mask was found")
        return Unknown(str(error))
    if bool(levels.visible.all()) and not roots_of(bench, first):
        misplaced = tuple(misplaced_masks(subject, bench, first))
        if not misplaced:
            return NotApplicable("nothing is hidden")
        return Known(MaskFit(misplaced=misplaced), "what is visible was measured with scores of 0")
    inverted = tuple(inversions(subject, bench, first, contract))
    misplaced = () if inverted else tuple(misplaced_masks(subject, bench, first))
    elsewhere = any(m.kind == "source" for m in misplaced)
    triangle = None if elsewhere or inverted else causal_cross(subject, bench, first)
    unwanted = None if inverted else unwanted_triangle(subject, bench, first, contract)
    return Known(
        MaskFit(inverted, misplaced, triangle, unwanted),
        "single elements of the masks were turned over, and what is visible read off with scores"
        " of 0",
    )
