"""Queries that are made from the keys themselves: routing and clustering by agreement.

Capsules, expectation-maximisation and Hopfield networks refine a state by what it agrees with. They
normalise, split and merge as their own definitions say, which multi-head attention does not judge.
"""

from __future__ import annotations

from dataclasses import replace

from mha_lint.facts.bench import Bench
from mha_lint.facts.sharing import mixes_positions, moved_alike, one_tensor
from mha_lint.model.facts import SiteFacts, Unknown
from mha_lint.sites.site import Site

WHY = "the queries are made from the keys themselves, as in routing by agreement"


def without_routing(bench: Bench, site: Site, facts: SiteFacts) -> SiteFacts:
    """Return `facts` with all left open that routing lays out in its own way."""
    if not any(_asks_itself(bench, member) for member in site.all):
        return facts
    open_ = Unknown(WHY)
    return replace(
        facts, normaliser=open_, split_q=open_, split_k=open_, split_v=open_, merge=open_,
        roles=open_, output_projection=open_,
    )  # fmt: skip


def _asks_itself(bench: Bench, site: Site) -> bool:
    q, k = site.q, site.k
    if q is None or k is None or q.source is None:
        return False
    if q.source.kind == "context":
        asked = [m for s in bench.sites for m in s.all if m.context is q.source.node]
        return any(one_tensor(bench, m.v, k) for m in asked)
    if k.source is None or q.source.node is not k.source.node:
        return False
    if q.source.kind != "projection":
        return False
    alike = all(moved_alike(bench, q, k, axis) for axis in q.source.channel_axes)
    return alike and mixes_positions(q) and not mixes_positions(k)
