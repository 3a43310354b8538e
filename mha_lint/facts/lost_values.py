"""What is known of a site whose weights go on in the place of its context."""

from __future__ import annotations

import dataclasses

from mha_lint.facts.bench import Bench
from mha_lint.facts.places import return_after, span_beside, span_of
from mha_lint.model.facts import Known, NotApplicable, Roles, SiteFacts
from mha_lint.model.source import Span
from mha_lint.sites.dependence import stack_of
from mha_lint.sites.site import Site

_NOTHING = NotApplicable("nothing reads the context: the weights take its place")


def with_lost_values(bench: Bench, site: Site, facts: SiteFacts) -> SiteFacts:
    """Return `facts` with that said in place of what the context would be judged by."""
    if site.instead is None:
        return facts
    roles = facts.roles.value if isinstance(facts.roles, Known) else Roles((), (), ())
    said = f"nothing reads the result of the product with V; {_reader(bench, site)} the weights"
    spans = dict(facts.info.spans)
    place = _taken_at(bench, site)
    if place is not None:
        spans["weights_taken"] = place
    return dataclasses.replace(
        facts,
        info=dataclasses.replace(facts.info, spans=spans),
        roles=Known(dataclasses.replace(roles, value_is="weights", same=()), said),
        merge=_NOTHING,
        output_projection=_NOTHING,
        stacked=_NOTHING,
        overwritten=_NOTHING,
    )


def _reader(bench: Bench, site: Site) -> str:
    source = bench.finder.sources.at(site.instead) if site.instead is not None else None
    names = source.parameters if source is not None and source.kind == "projection" else ()
    return f"{names[0].removesuffix('.weight')} reads" if names else "what is returned is"


def _taken_at(bench: Bench, site: Site) -> Span | None:
    """Return where the weights are taken for the context.

    That is the call of the helper that makes both, else the first line behind the softmax that
    leads to what reads them.
    """
    reader = site.instead
    at = span_beside(site.context, reader)
    stack = stack_of(site.context)
    if stack and at != stack[-1].span:
        return at
    assert reader is not None
    if bench.finder.sources.learned_map(reader) is None:
        return return_after(site.context)
    for node in bench.dependence.between(site.normaliser.weights, reader):
        span = span_of(node)
        if span is not None and not _leads_to(bench, site, span):
            return span
    return span_of(reader)


def _leads_to(bench: Bench, site: Site, span: Span) -> bool:
    """Return whether `span` also makes what the product with V reads: dropout, a mask."""
    path = bench.dependence.between(site.normaliser.weights, site.context)
    return any(span_of(n) == span for n in path if n is not site.context)
