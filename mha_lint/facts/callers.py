"""One helper that serves several sites: where they differ, the call is to blame and not the helper."""

from __future__ import annotations

import dataclasses
import math

from mha_lint.facts.spans import own_line
from mha_lint.model.facts import Known, SiteFacts
from mha_lint.sites.site import Site

PLACES = ("scores", "scale")


def at_their_calls(sites: list[Site], facts: list[SiteFacts]) -> list[SiteFacts]:
    """Return `facts` with the places of the scale at the call, where another call scales otherwise.

    Only sites of one module are compared: two modules of one class may be made in different ways.
    """
    out: list[SiteFacts] = []
    for site, one in zip(sites, facts, strict=True):
        others = [
            other
            for other, its in zip(sites, facts, strict=True)
            if other is not site and _served_alike(one, its) and _scaled_otherwise(one, its)
        ]
        spans = dict(one.info.spans)
        span = own_line(site.all[0].scores, [o.all[0].scores for o in others])
        if others and span is not None:
            spans |= {place: span for place in PLACES if place in spans}
        out.append(dataclasses.replace(one, info=dataclasses.replace(one.info, spans=spans)))
    return out


def _served_alike(one: SiteFacts, other: SiteFacts) -> bool:
    here, there = one.info.spans.get("scores"), other.info.spans.get("scores")
    return here is not None and here == there and one.info.module == other.info.module


def _scaled_otherwise(one: SiteFacts, other: SiteFacts) -> bool:
    """Return whether `one` has not the right scale, and `other` is scaled by another rule."""
    if not isinstance(one.scale, Known) or not isinstance(other.scale, Known):
        return False
    here, there = one.scale.value, other.scale.value
    if here.right or (here.named is not None and here.named == there.named):
        return False
    return not math.isclose(here.value, there.value, rel_tol=1e-5)
