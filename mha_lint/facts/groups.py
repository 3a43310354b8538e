"""Which key/value head each query head meets."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Fact, Unknown
from mha_lint.model.position_facts import HeadGroups
from mha_lint.sites.site import Site


def measure_groups(bench: Bench, site: Site) -> Fact[HeadGroups]:
    """Return the key/value head of each query head of `site`."""
    del bench, site
    return Unknown("not measured")
