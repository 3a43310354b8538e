"""The sites of one subject that are squares of scores, their patterns, and what reaches what."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.causal.mixing import Way, into, ways
from mha_lint.facts.causal.patterns import Pattern, patterns_of
from mha_lint.facts.causal.rows import context_axis, held_moves, moves, rows_of
from mha_lint.facts.influence import Entry, changed, dominant_shift, some
from mha_lint.facts.masks.levels import levels_of
from mha_lint.model.causal_facts import Leak
from mha_lint.model.facts import Kind
from mha_lint.sites.site import Site


@dataclass(slots=True)
class View:
    """``patterns``: those of the groups of each site; ``members``: sites (of loops: their members)
    with as many keys as queries, in recorded order; ``numbers``: the site that a context is of.
    """

    bench: Bench
    patterns: list[list[Pattern]]
    members: list[Site]
    numbers: dict[Node, int]
    _ways: dict[int, list[Way]] = field(default_factory=dict)

    @classmethod
    def of(cls, bench: Bench) -> View:
        """Look at the masks of all sites of `bench`."""
        patterns: list[list[Pattern]] = []
        numbers: dict[Node, int] = {}
        members: list[Site] = []
        for index, site in enumerate(bench.sites):
            of_site: list[Pattern] = []
            for member in site.all:
                numbers[member.context] = index
                if member.score is None or member.kind not in (Kind.SELF, Kind.CROSS):
                    continue
                found = patterns_of(bench, member)
                of_site += found
                members += [member] if found else []
            patterns.append(of_site)
        members.sort(key=lambda m: bench.dependence.order[m.context])
        return cls(bench, patterns, members, numbers)

    def number(self, site: Site) -> int:
        """Return the place of `site` (or of the site that it is a member of) among all sites."""
        return self.numbers[site.context]

    def rows(self, site: Site) -> int:
        """Return how many queries `site` has."""
        return int(levels_of(self.bench, site).level.shape[1])

    @property
    def selves(self) -> list[Site]:
        """Return the members of self-attention."""
        return [m for m in self.members if m.kind is Kind.SELF]

    def alike(self, count: int) -> list[Site]:
        """Return the members of self-attention with `count` rows."""
        return [m for m in self.selves if self.rows(m) == count]

    def counts(self) -> list[int]:
        """Return the numbers of rows that occur, in recorded order."""
        return list(dict.fromkeys(self.rows(m) for m in self.selves))

    def drawn(self, *wanted: Pattern) -> list[Site]:
        """Return the members of self-attention whose groups all draw one of `wanted`."""
        return [m for m in self.selves if set(self.patterns[self.number(m)]) <= set(wanted)]

    def has(self, pattern: Pattern) -> bool:
        """Return whether some group of some site draws `pattern`."""
        return any(pattern in p for p in self.patterns)

    def ways(self, count: int) -> list[Way]:
        """Return how positions of inputs stand to rows of outputs, for sites with `count` rows."""
        if count not in self._ways:
            self._ways[count] = ways(self.bench, self.alike(count), count)
        return self._ways[count]

    def leak(self, site: Site) -> Leak | None:
        """Return a later position that reaches an earlier row through `site`.

        The row is one of an output; where no output has such rows, one of the context of `site`.
        """
        reached = self.ways(self.rows(site))
        for way in reached:
            if self._feeds(way, site) and (leak := self.earlier(way)) is not None:
                return leak
        axis = None if reached else context_axis(self.bench, site)
        if axis is None:
            return None
        for entry, own in into(self.bench, [site], self.rows(site)):
            leak = self.earlier(Way(entry, site.context, axis, own), "the context of query")
            if leak is not None:
                return leak
        return None

    def whole(self) -> tuple[Leak | None, bool | None]:
        """Return a leak from an input to an output, and whether there is none (None: no such rows)."""
        known: bool | None = None
        for count in self.counts():
            for way in self.ways(count):
                known = True
                if (leak := self.earlier(way)) is not None:
                    return leak, False
        return None, known

    def earlier(self, way: Way, reached: str = "output") -> Leak | None:
        """Return the largest change of a row before the own one of a position that was moved."""
        assert way.entry.axis is not None
        count = int(self.bench.replay.base(way.entry.node).shape[way.entry.axis])
        positions = sorted({count - 1, max(1, count - 2), max(1, count // 2)})
        _, (change,) = changed(self.bench, way.entry, [way.output], positions)
        rows = change.movedim(way.axis + 1, 1)
        rows = rows.reshape(*rows.shape[:2], -1).amax(-1)
        place = torch.tensor(positions)[:, None] + way.own
        early = torch.where(torch.arange(rows.shape[1]) < place, rows, 0.0)
        if not bool((early > 0).any()):
            return None
        p, row = divmod(int(early.argmax()), early.shape[1])
        return Leak(way.entry.argument, positions[p], row, float(early[p, row]), reached, way.own)

    def one_stack(self, site: Site, other: Site) -> bool:
        """Return whether each row of the earlier of two sites moves its own row of the later one."""
        order = self.bench.dependence.order
        first, second = sorted((site, other), key=lambda s: order[s.context])
        axis = context_axis(self.bench, first)
        if axis is None or second.q is None:
            return False
        if second.q.node not in self.bench.dependence.descendants([first.context]):
            return False
        source, count = Entry(first.context, "", axis), self.rows(first)
        positions, (change,) = held_moves(self.bench, source, [second.q.node], some(count))
        found = moves(positions, change, rows_of(self.bench, second).q, count)
        return dominant_shift(positions, found.rows) == 0

    def _feeds(self, way: Way, site: Site) -> bool:
        below = self.bench.dependence.descendants
        return (
            site.q is not None
            and site.q.node in below([way.entry.node])
            and way.output in below([site.context])
        )
