"""Whether what is hidden at one site is what should be: polarity, axis, source."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Fact, Unknown
from mha_lint.model.mask_fit_facts import MaskFit
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject


def measure_mask_fit(
    subject: Subject, bench: Bench, site: Site, contract: Contract
) -> Fact[MaskFit]:
    """Return how what `site` hides fits the masks that were given and what is meant."""
    del subject, bench, site, contract
    return Unknown("not measured")
