"""Whether the weights that are returned are those that were applied."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Fact, Unknown
from mha_lint.model.numeric_facts import ReturnedWeights
from mha_lint.sites.site import Site


def measure_returned(bench: Bench, site: Site) -> Fact[ReturnedWeights]:
    """Return how the weights among the outputs compare with those of `site`."""
    del bench, site
    return Unknown("not measured")
