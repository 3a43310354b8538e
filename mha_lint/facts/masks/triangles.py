"""Triangles that leave later positions visible, and no earlier one."""

from __future__ import annotations

import re

from torch.fx import Node

from mha_lint.facts.bench import Bench
from mha_lint.facts.masks.bands import distances
from mha_lint.facts.masks.held import in_order, rows_of
from mha_lint.facts.masks.joins import (
    fill_of,
    handed_over,
    is_fixed,
    join_of,
    made_at,
    triangle_node,
)
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.patterns import Pattern, pattern_at
from mha_lint.facts.masks.words import says_backward, sources_of
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.places import span_of
from mha_lint.model.facts import Kind
from mha_lint.model.mask_fit_facts import Inversion
from mha_lint.model.source import Span
from mha_lint.sites.dependence import stack_of
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

_WINDOW = re.compile(r"window|local|neighbou?r|nearby|band", re.IGNORECASE)
_FAR = re.compile(
    r"complement|far|distant|global|outside|beyond|exclu|dilat|long|skip|others|remote|non-?local",
    re.IGNORECASE,
)


def turned_triangle(subject: Subject, bench: Bench, site: Site) -> Inversion | None:
    """Return a triangle that leaves later positions visible only, None if there is none."""
    visible = levels_of(bench, site).visible
    found = pattern_at(bench, site, square=True)
    if found is None or found.side != "later" or not found.whole:
        return None
    if not in_order(rows_of(bench, site)) or _other_direction(bench, site):
        return None
    made = triangle_node(bench, site)
    join = fill_of(bench, site, made)
    nodes = [n for n in (made, join, site.scores) if n is not None]
    texts = [s.text for s in sources_of(subject, nodes)]
    functions = [f.function for n in nodes for f in stack_of(n)]
    if says_backward([*texts, *functions]):
        return None
    span, built = _fault(bench, found, made, join)
    t = visible.shape[1]
    side = "itself and later positions" if found.itself else "later positions"
    last = "" if found.itself else ", and the last sees nothing at all"
    signs = (f"every one of {t} positions sees {side} only, none sees an earlier one{last}",)
    other = made_at(bench, join if built else made)
    return Inversion(
        "triangle",
        "the triangle",
        "",
        signs,
        True,
        built,
        span,
        other if other != span else None,
        _triangle_witness(bench, site, t),
    )


def _other_direction(bench: Bench, site: Site) -> bool:
    """Return whether another site beside this one sees earlier positions only: the two are a pair."""
    above = bench.dependence.ancestors([site.context])
    below = bench.dependence.descendants([site.context])
    for other in bench.sites:
        one = other.all[0]
        if one is site or one.context in above | below or one.score is None:
            continue
        try:
            found = pattern_at(bench, one, square=True)
        except NotArrangedError:
            continue
        if found is not None and found.side == "earlier":
            return True
    return False


def _fault(
    bench: Bench, pattern: Pattern, made: Node | None, join: Node | None
) -> tuple[Span | None, bool]:
    """Return the line at fault, and whether it is where the triangle is built.

    A triangle that sees itself was built on the wrong side. One that does not is the complement of a
    right one: its maker and its reader differ. Then it is the reader who is wrong where his
    convention is his own, the maker where he hands it to another class.
    """
    built, read = made_at(bench, made), span_of(join)
    if built is None or read is None:
        return built or read, built is not None
    if pattern.itself:
        return built, True
    if is_fixed(bench, join):
        return read, False
    if made is not None and join is not None and handed_over(made, join):
        return built, True
    return read, False


def _triangle_witness(bench: Bench, site: Site, t: int) -> str:
    """Return what changing the last and the first value does to the context."""
    value = site.v.node
    rows = site.v.rows
    if len(rows) != 1:
        return ""
    at = bench.replay.base(value)
    before = bench.replay.base(site.context)
    moved: list[bool] = []
    for position in (t - 1, 0):
        pushed = at.clone()
        pushed.select(rows[0], position).add_(0.5)
        (after,) = bench.replay.run([site.context], {value: pushed})
        moved.append(bool(((after - before).abs() > 1e-9).any()))
    if not moved[0]:
        return ""
    return f"changing the value at position {t - 1} moves the context of positions before it"


def turned_window(subject: Subject, bench: Bench, site: Site) -> Inversion | None:
    """Return a mask that hides just a window that ends with the query, and shows all else.

    Nobody needs that: it is the complement of a causal window. The complement of one on both sides is
    taken for a fault only where the text speaks of a window, and of nothing far away.
    """
    if site.kind is not Kind.SELF:
        return None
    seen, t = distances(bench, site), levels_of(bench, site).visible.shape[1]
    if not seen:
        return None
    hidden = set(range(1 - t, t)) - seen
    width = -min(hidden, default=0)
    if not width or width >= t - 1 or 0 not in hidden:
        return None
    one_sided = hidden == set(range(-width, 1))
    made = triangle_node(bench, site)
    join = join_of(bench, site, None)
    texts = [s.text for s in sources_of(subject, [n for n in (made, join) if n is not None])]
    if not one_sided and not (
        hidden == set(range(-width, width + 1))
        and any(_WINDOW.search(t) for t in texts)
        and not any(_FAR.search(t) for t in texts)
    ):
        return None
    back = f"the {width} before it" if one_sided else f"the {width} on either side of it"
    span = span_of(join)
    return Inversion(
        "window",
        "the window",
        "",
        (f"every query sees all positions but itself and {back}",),
        one_sided,
        False,
        span,
        None,
        f"query {t - 1} does not see key {t - 1}, and sees key 0",
    )
