"""What large scores and narrow types do to the normaliser."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Fact, Unknown
from mha_lint.model.numeric_facts import Stability
from mha_lint.sites.site import Site


def measure_stability(bench: Bench, site: Site) -> Fact[Stability]:
    """Return how the normaliser of `site` takes large scores in its own type."""
    del bench, site
    return Unknown("not measured")
