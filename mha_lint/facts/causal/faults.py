"""What lets a later position reach an earlier one, each with the line that does it."""

from __future__ import annotations

import dataclasses

from mha_lint.facts.bench import Bench
from mha_lint.facts.causal.frames import leaves_frames_apart
from mha_lint.facts.causal.intent import (
    AHEAD,
    ENCODED,
    LATENT,
    ROUNDED,
    STRICTLY,
    WHOLE,
    Meant,
    is_asked_to_see_all,
)
from mha_lint.facts.causal.lines import (
    at_keyword,
    has_idle_mask,
    is_given,
    may_be_given,
    step_line,
    triangle_line,
)
from mha_lint.facts.causal.lost import lost_triangle
from mha_lint.facts.causal.mixing import joins
from mha_lint.facts.causal.patterns import UNMASKED, Pattern, ahead, behind
from mha_lint.facts.causal.summaries import comes_by_a_returned_summary
from mha_lint.facts.causal.view import View
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.places import span_of
from mha_lint.model.causal_facts import CausalFault, Leak
from mha_lint.model.source import Span
from mha_lint.sites.dependence import stack_of
from mha_lint.sites.site import Site


def faults_of(view: View, meant: Meant | None, text: str) -> list[CausalFault]:
    """Return what lets the future through; `text`: the source, for words of designs that mean to."""
    both_ways = view.has(Pattern.REVERSE)
    found = [*_strict(view, text), *_ahead(view, meant, text)]
    if not both_ways:
        found += _lost(view)
    stated = meant is not None and meant.stated
    if found or (both_ways and not stated):
        return found
    causal, unmasked = view.drawn(Pattern.CAUSAL), view.drawn(*UNMASKED)
    if causal:
        found = _beside_masked(view, causal, unmasked, meant, text)
    elif meant is not None and unmasked:
        found = _never_masked(view, unmasked, meant)
    if not found and meant is not None and meant.stated:
        found = _as_stated(view, meant)
    return found


def _strict(view: View, text: str) -> list[CausalFault]:
    """Return sites at which no query sees itself, so that the first one sees nothing."""
    found: list[CausalFault] = []
    for site in view.drawn(Pattern.STRICT):
        if is_given(view.bench, site):
            continue
        how = _first_row(view.bench, site)
        if how and not (how == "zeros" and STRICTLY.search(text)):
            at = triangle_line(view.bench, site)
            leak = view.leak(site) if how == "everything" else None
            found.append(CausalFault("strict", view.number(site), at, leak, detail=how))
    return found


def _first_row(bench: Bench, site: Site) -> str:
    """Return what the first query, which sees nothing, makes of it; "" if that is taken care of."""
    levels = levels_of(bench, site)
    weights = levels.weights[:, 0]
    if bool(weights.isnan().any()):
        outputs = [bench.replay.base(n) for n in bench.recording.outputs]
        broken = any(o.is_floating_point() and bool(o.isnan().any()) for o in outputs)
        return "NaN" if broken else ""
    if bool((weights == 0).all()):
        return "zeros" if "safe_softmax" in str(site.normaliser.weights.target) else ""
    return "everything" if bool(levels.hidden[:, 0].all() and (weights != 0).all()) else ""


def _ahead(view: View, meant: Meant | None, text: str) -> list[CausalFault]:
    """Return sites at which every query sees a few later keys, and no word says that it should."""
    if AHEAD.search(text) and not (meant is not None and meant.stated):
        return []
    # A window of as many keys on both sides, or of one more on one, is no triangle that starts too late.
    found: list[CausalFault] = []
    for site in view.drawn(Pattern.AHEAD):
        visible = levels_of(view.bench, site).visible[0]
        count = ahead(visible) or 0
        both_sides = abs(behind(visible) - count) <= 1
        if ((count > 1 or both_sides) and meant is None) or is_given(view.bench, site):
            continue
        leak = view.leak(site)
        if leak is not None:
            at = triangle_line(view.bench, site)
            said = meant if count > 1 else None
            found.append(_fault("ahead", view, site, at, leak, said, count=count))
    return found


def _lost(view: View) -> list[CausalFault]:
    found: list[CausalFault] = []
    for site in view.drawn(Pattern.OPEN):
        node = lost_triangle(view.bench, site, view.rows(site))
        if node is not None:
            at = span_of(node)
            found.append(CausalFault("lost", view.number(site), at, view.leak(site)))
    return found


def _beside_masked(
    view: View, causal: list[Site], unmasked: list[Site], meant: Meant | None, text: str
) -> list[CausalFault]:
    """Return what gets around the masks of `causal`: sites without one, else mixing by no attention.

    What an encoder makes of the same sequence (a latent of an autoencoder) is meant to be read.
    """
    if LATENT.search(text):
        return []
    apart = WHOLE.search(text) is not None
    found = [] if apart else _one_of_several(view, causal, unmasked, meant)
    return found if found or ROUNDED.search(text) else _mixed(view, causal)


def _one_of_several(
    view: View, causal: list[Site], unmasked: list[Site], meant: Meant | None
) -> list[CausalFault]:
    """Return a site without a mask in one stack with a causal one of the same class."""
    for site in unmasked:
        if is_asked_to_see_all(view.bench, site):
            continue
        for other in causal:
            if view.rows(site) != view.rows(other) or not (_alike(site, other) or meant):
                continue
            apart = _encodes(str(site.context.meta.get("module", "")), causal)
            if apart or may_be_given(view.bench, site) or not view.one_stack(site, other):
                continue
            leak = view.leak(site)
            if leak is not None:
                at, label = _calls(site, other)
                said = None if _alike(site, other) else meant
                one = _fault("unmasked", view, site, at, leak, said)
                return [one] if label == at else [dataclasses.replace(one, label=label)]
    return []


def _calls(site: Site, other: Site) -> tuple[Span | None, Span | None]:
    """Return the lines that call `site` and `other`, where they part; of a loop, that of the loop."""
    one, two = stack_of(site.context), stack_of(other.context)
    for a, b in zip(one, two, strict=False):
        if a.span != b.span:
            return a.span, b.span
    forwards = [f for f in one if f.function.split(".")[-1] == "forward"]
    at = forwards[-2].span if len(forwards) > 1 else span_of(site.context)
    return at, at


def _alike(site: Site, other: Site) -> bool:
    one, two = (str(s.context.meta.get("module_class") or "") for s in (site, other))
    return (one == two and bool(one)) or span_of(site.scores) == span_of(other.scores)


def _mixed(view: View, causal: list[Site]) -> list[CausalFault]:
    """Return where positions are mixed besides attention, in a stack whose sites are all causal."""
    known = {id(s) for s in causal}
    for count in dict.fromkeys(view.rows(s) for s in causal):
        sites = view.alike(count)
        if any(id(s) not in known for s in sites):
            continue
        found = joins(view.bench, sites, count)
        if found is None or any(_encodes(name, causal) for name in found.through):
            continue
        if comes_by_a_returned_summary(view.bench, found):
            continue
        for way in view.ways(count):
            other = bool(found.entry.argument) and way.entry.argument != found.entry.argument
            if not other and (leak := view.earlier(way)) is not None:
                number = view.number(sites[0])
                at = span_of(found.node)
                return [CausalFault("mixing", number, at, leak, detail=found.reaches)]
    return []


def _encodes(name: str, causal: list[Site]) -> bool:
    """Return whether a module or function of this name makes a state of the whole; one with masked
    attention within is a stack of layers, whatever it is called.
    """
    match = ENCODED.search(name)
    if match is None:
        return False
    within = name[: match.end()].rstrip("._")
    paths = [str(s.context.meta.get("module", "")) for s in causal]
    return not any(p == within or p.startswith(f"{within}.") for p in paths)


def _never_masked(view: View, sites: list[Site], meant: Meant) -> list[CausalFault]:
    """Return the first of `sites`, if no site of the subject hides anything.

    A mask that hides nothing at these sizes (a block as long as the sequence) may do so at others.
    """
    hides = any(not set(p) <= set(UNMASKED) for p in view.patterns)
    for site in sites:
        unsure = hides or may_be_given(view.bench, site) or has_idle_mask(view.bench, site)
        if (unsure or leaves_frames_apart(view.bench, site)) and not meant.stated:
            continue
        leak = view.leak(site)
        if leak is not None:
            at = at_keyword(span_of(site.normaliser.weights))
            return [_fault("open", view, site, at, leak, meant)]
    return []


def _as_stated(view: View, meant: Meant) -> list[CausalFault]:
    """Return the first site that leaks in code that the user expects to be causal."""
    for site in view.drawn(Pattern.OTHER, *UNMASKED, Pattern.REVERSE, Pattern.AHEAD):
        leak = view.leak(site)
        if leak is not None:
            at = step_line(view.bench, site) or span_of(site.normaliser.weights)
            kind = "open" if set(view.patterns[view.number(site)]) <= set(UNMASKED) else "other"
            return [_fault(kind, view, site, at, leak, meant)]
    return []


def _fault(
    kind: str,
    view: View,
    site: Site,
    at: Span | None,
    leak: Leak,
    meant: Meant | None,
    *,
    count: int = 0,
) -> CausalFault:
    return CausalFault(
        kind, view.number(site), at, leak, meant.source if meant else "",
        bool(meant and meant.stated), count,
    )  # fmt: skip
