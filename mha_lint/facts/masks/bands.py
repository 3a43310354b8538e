"""Windows beside the diagonal that lie on the wrong side, or are one position short."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.held import in_order, rows_of
from mha_lint.facts.masks.joins import join_of, made_at, triangle_node
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.origins import PASSING
from mha_lint.facts.masks.patterns import pattern_at
from mha_lint.facts.masks.roots import mask_closure
from mha_lint.facts.masks.words import remarks, says_backward, sources_of
from mha_lint.facts.places import span_of
from mha_lint.model.facts import Kind
from mha_lint.model.mask_fit_facts import Misplaced
from mha_lint.sites.dependence import op
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

_WINDOW = re.compile(r"window|local|lookback|look_back|span")
_SIDES = re.compile(
    r"reach|radius|window|span|width|halo|context|neighbo|local|half|band|range|side"
)
_ONE_SIDE = re.compile(r"ahead|back|left|right|future|past|before|after|next|prev|lag|lead|hop")
_BOTH = re.compile(
    r"(?:either|both|each) (?:sides?|directions?|ways?)|symmetric|non-?causal|bi-?directional|"
    r"cent(?:re|er)d|neighbou?rs? (?:before and after|left and right)|left and right|"
    r"before and after|past and future|\+/-|±",
    re.IGNORECASE,
)
_INCLUDED = re.compile(
    r"itself included|including (?:itself|the current|its own)|(?:itself|current \w+) (?:is )?counted|"
    r"incl(?:\.|uding) self|and itself",
    re.IGNORECASE,
)


def wrong_band(subject: Subject, bench: Bench, site: Site) -> Iterator[Misplaced]:
    """Yield a band that shows later positions only, or fewer positions than its window holds."""
    if site.kind is not Kind.SELF:
        return
    yield from _lopsided(subject, bench, site)
    found = pattern_at(bench, site, square=True)
    if found is None or found.whole or not in_order(rows_of(bench, site)):
        return
    made = triangle_node(bench, site)
    join = join_of(bench, site, made)
    texts = [s.text for s in sources_of(subject, [n for n in (made, join) if n is not None])]
    if found.side == "later" and not says_backward(texts):
        yield Misplaced(
            "window",
            "the window",
            "every position sees the next few positions and none before it",
            True,
            made_at(bench, made) or span_of(join),
            "the first query sees the second key, and the second query does not see the first key",
        )
    elif found.side == "earlier":
        yield from _short(subject, bench, site, texts)


def _short(subject: Subject, bench: Bench, site: Site, texts: list[str]) -> Iterator[Misplaced]:
    """Yield a window that holds one position less, or more than its text says."""
    visible = levels_of(bench, site).visible
    seen = int(visible.sum(-1).max())
    if seen == visible.shape[2]:
        return
    for name, size in subject.sizes.items():
        if not _WINDOW.search(name.lower()) or size < 2:
            continue
        included = any(_INCLUDED.search(line) for t in texts for line in remarks(t))
        if seen == size - 1 or (seen == size + 1 and included):
            join = join_of(bench, site, None)
            yield Misplaced(
                "short",
                "the window",
                f"a query sees {seen} keys, itself among them, and {name} is {size}",
                False,
                span_of(join),
            )
        return


def distances(bench: Bench, site: Site) -> frozenset[int] | None:
    """Return the distances (key less query) that are visible, None unless these alone decide.

    Raises:
        NotArrangedError: as `levels_of` does.
    """
    visible = levels_of(bench, site).visible
    t_q, t_k = visible.shape[1:]
    if t_q != t_k or t_q < 3 or not in_order(rows_of(bench, site)):
        return None
    ahead = torch.arange(t_k)[None, :] - torch.arange(t_q)[:, None]
    found = set()
    for distance in range(1 - t_q, t_q):
        there = visible[:, ahead == distance]
        if bool(there.any()) != bool(there.all()):
            return None
        if bool(there.any()):
            found.add(distance)
    return frozenset(found)


def _lopsided(subject: Subject, bench: Bench, site: Site) -> Iterator[Misplaced]:
    """Yield a band around each query that is one position shorter on one side than it says."""
    seen = distances(bench, site)
    if not seen or 0 not in seen:
        return
    back, ahead = -min(seen), max(seen)
    if len(seen) != back + ahead + 1 or abs(back - ahead) != 1 or not min(back, ahead):
        return
    longer, t = max(back, ahead), levels_of(bench, site).visible.shape[1]
    sizes = {n: s for n, s in subject.sizes.items() if _SIDES.search(n.lower())}
    names = [n for n, s in sizes.items() if s == longer]
    others = {s for n, s in subject.sizes.items() if n in sizes or _ONE_SIDE.search(n.lower())}
    even = {back + ahead + 1, min(back, ahead)} & others
    if not names or even or longer >= t - 1:
        return
    join = join_of(bench, site, None)
    closure = mask_closure(bench, site)
    made = max(
        (n for n in closure if _is_table(bench, n, t)),
        key=bench.dependence.order.__getitem__,
        default=None,
    )
    texts = [s.text for s in sources_of(subject, [n for n in (made, join) if n is not None])]
    if any(_BOTH.search(line) for text in texts for line in remarks(text)):
        yield Misplaced(
            "lopsided",
            "the window",
            f"a query sees {back} positions before it and {ahead} behind it, and {names[0]} is {longer}",
            False,
            span_of(made) if made is not None else span_of(join),
        )


def _is_table(bench: Bench, node: Node, t: int) -> bool:
    """Return whether `node` makes truth values about pairs of `t` positions, and turns none over."""
    if op(node) in PASSING:
        return False
    value = bench.recording.values.get(node)
    return isinstance(value, Tensor) and value.dtype is torch.bool and value.shape[-2:] == (t, t)
