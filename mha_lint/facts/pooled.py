"""Queries that are pooled from the very states that they ask: one for the whole of a sample."""

from __future__ import annotations

from mha_lint.facts.bench import Bench
from mha_lint.sites.axes import single
from mha_lint.sites.dependence import is_number, shape
from mha_lint.sites.site import Site
from mha_lint.sites.trace import trace, varies_along


def asks_as_one(bench: Bench, site: Site) -> bool:
    """Return whether each head has one query, made of all the states that it attends to.

    The mean of all positions asks them what to keep of them: that is pooling, as with one learned
    query. A class token is one of the positions, and so is the last one.
    """
    q, k = site.q, site.k
    if q is None or k is None or not single(q, bench.replay):
        return False
    above, recording = bench.dependence.ancestors, bench.recording
    shared = [
        n
        for n in above([q.node]) & above([k.node])
        if bench.dependence.on_data(n) and is_number(recording, n) and len(shape(recording, n)) > 1
    ]
    if not shared:
        return False
    states = max(shared, key=bench.dependence.order.__getitem__)
    to_q, to_k = trace(bench.replay, states, q.node), trace(bench.replay, states, k.node)
    asked = [
        a
        for a, index in enumerate(to_k.index)
        if to_k.shape[a] > 1 and to_k.clean[a] and any(varies_along(index, r) for r in k.rows)
    ]
    return bool(to_q.responds.any()) and any(not to_q.clean[a] for a in asked)
