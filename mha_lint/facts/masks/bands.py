"""Windows beside the diagonal that lie on the wrong side, or are one position short."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.held import in_order, rows_of
from mha_lint.facts.masks.joins import join_of, made_at, triangle_node
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.patterns import pattern_at
from mha_lint.facts.masks.words import remarks, says_backward, sources_of
from mha_lint.facts.places import span_of
from mha_lint.model.facts import Kind
from mha_lint.model.mask_fit_facts import Misplaced
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

_WINDOW = re.compile(r"window|local|lookback|look_back|span")
_INCLUDED = re.compile(
    r"itself included|including (?:itself|the current|its own)|(?:itself|current \w+) (?:is )?counted|"
    r"incl(?:\.|uding) self|and itself",
    re.IGNORECASE,
)


def wrong_band(subject: Subject, bench: Bench, site: Site) -> Iterator[Misplaced]:
    """Yield a band that shows later positions only, or fewer positions than its window holds."""
    if site.kind is not Kind.SELF:
        return
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
