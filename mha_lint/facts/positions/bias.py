"""What is added to the scores by position."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Fact, Unknown
from mha_lint.model.position_facts import PositionBias
from mha_lint.sites.site import Site


def measure_bias(bench: Bench, site: Site) -> Fact[PositionBias]:
    """Return the bias of `site` by position."""
    del bench, site
    return Unknown("not measured")
