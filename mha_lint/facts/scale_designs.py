"""Designs in which another scale is due than 1/sqrt(head_dim), or none."""

from __future__ import annotations

import math
from collections import Counter

from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.positions.rotary import measure_rotary
from mha_lint.facts.readings import is_right, matching
from mha_lint.model.facts import Dims, Known
from mha_lint.sites.dependence import op, shape
from mha_lint.sites.site import Site
from mha_lint.sites.source import Source

ROUNDED = 1e-4
"""Relative: the gain of a rotation is told to five digits."""


def mapped_again(bench: Bench, site: Site, value: float) -> bool:
    """Return whether q went through a second map per head whose input width explains the scale.

    Absorbed latent attention contracts with latents, but scales by the width of the heads. The
    second map acts on heads that stand apart: it has one row for each head where the first has one
    for each position.
    """
    source = site.q.source if site.q is not None else None
    if source is None or source.kind != "projection" or source.reads is None:
        return False
    rows = _rows(bench, source)
    behind = [s for s in bench.finder.sources.of(source.reads) if s.kind == "projection"]
    found = bench.finder.sources.contraction(source.call)
    own = bool(behind) and found is not None and bool(found.shared)  # one matrix for each head
    served = any(0 < (n := _rows(bench, s)) < rows and rows % n == 0 for s in behind)
    return (own or served) and math.isclose(value, source.in_width**-0.5, rel_tol=1e-5)


def _rows(bench: Bench, source: Source) -> int:
    return int(bench.replay.base(source.node).numel()) // source.out_width


def scale_cancels(bench: Bench, site: Site) -> bool:
    """Return whether twice the scores give the same weights."""
    first = site.all[0]
    if first.normaliser.element != "coupled":
        return False
    at, base = bench.replay.base(first.scores), bench.replay.base(first.weights)
    (twice,) = bench.replay.run([first.weights], {first.scores: 2 * at})
    return bool((twice - base).abs().nan_to_num().max() < 1e-3 * base.abs().nan_to_num().max())


def own_kind(bench: Bench, site: Site) -> bool:
    """Return whether something else than exponentials normalises: sparsemax, powers, a plain sum."""
    first = site.all[0]
    if first.normaliser.element != "coupled":
        return False
    path = bench.dependence.between(first.scores, first.normaliser.weights)
    return not any(op(n) in ("exp", "exp2", "softmax") for n in path)


def beside_rotation(bench: Bench, site: Site, value: float, dims: Dims, terms: int) -> list[str]:
    """Return the right names of the scale once the gain of the rotation's tables is taken off."""
    rotary = measure_rotary(bench, site)
    if not isinstance(rotary, Known) or math.isclose(rotary.value.gain, 1, rel_tol=ROUNDED):
        return []
    names = matching(value / rotary.value.gain, dims, terms, ROUNDED)
    return [n for n in names if is_right(n, terms)]


def score_terms(bench: Bench, site: Site) -> int:
    """Return how many further products are added to the scores.

    Products of q or k with position terms (DeBERTa), and of two projections of positions (TUPE).
    """
    above = bench.dependence.ancestors([site.normaliser.logits])
    return sum(1 for n in site.extra if n in above) + sum(
        1
        for n in bench.finder.sources.learned_products
        if n in above and _of_positions(bench, site, n)
    )


def _of_positions(bench: Bench, site: Site, node: Node) -> bool:
    """Return whether `node` is a product of two learned tensors, for each query and key."""
    dependence = bench.dependence
    if not dependence.learned_only(node):
        return False
    found = bench.finder.sources.contraction(node)
    if found is None or not all(dependence.learned_only(n) for n in (found.left, found.right)):
        return False
    if not all(_projected(bench, n) for n in (found.left, found.right)):
        return False
    sizes = shape(bench.recording, site.scores)
    due = [n for a in (*site.row_axes, *site.key_axes) if (n := sizes[a]) > 1]
    return not Counter(due) - Counter(shape(bench.recording, node))


def _projected(bench: Bench, node: Node) -> bool:
    return any(s.kind == "projection" for s in bench.finder.sources.of(node))


def values_are_keys(site: Site) -> bool:
    """Return whether keys and values are one raw tensor, as where two sequences are aligned."""
    sources = [o.source for o in (site.k, site.v) if o is not None and o.source is not None]
    raw = len(sources) == 2 and all(s.kind == "input" for s in sources)
    return raw and sources[0].node is sources[1].node


def all_projected(site: Site) -> bool:
    """Return whether q, k and v each come out of a projection."""
    return all(
        o is not None and o.source is not None and o.source.kind == "projection"
        for o in (site.q, site.k, site.v)
    )
