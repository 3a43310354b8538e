"""How queries, keys and values are rotated by position."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.model.facts import Fact, Unknown
from mha_lint.model.position_facts import Rotary
from mha_lint.sites.site import Site


def measure_rotary(bench: Bench, site: Site) -> Fact[Rotary]:
    """Return the rotation that `site` applies."""
    del bench, site
    return Unknown("not measured")
