"""Scores that are put together from several products side by side."""

from __future__ import annotations

from mha_lint.capture import Replay
from mha_lint.sites.dependence import Dependence
from mha_lint.sites.site import Site
from mha_lint.sites.trace import trace


def products_beside(dependence: Dependence, replay: Replay, site: Site) -> bool:
    """Return whether the normaliser of `site` also sees products that stand beside its scores.

    Words and entities with projections of their own (LUKE), global and local keys: the site holds
    one block of the scores, and what stands beside it is no sink.
    """
    logits = site.normaliser.logits
    if site.to_logits is None:
        return False
    above = dependence.ancestors([logits])
    return any(
        bool((trace(replay, other, logits).responds & ~site.to_logits.responds).any())
        for other in site.extra
        if other in above
    )
