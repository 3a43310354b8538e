"""Where masks act at one site, how, and with which numbers."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Fact, Unknown
from mha_lint.model.mask_facts import Masking
from mha_lint.sites.site import Site


def measure_masking(bench: Bench, site: Site) -> Fact[Masking]:
    """Return how the masks of `site` act on its scores and weights."""
    del bench, site
    return Unknown("not measured")
