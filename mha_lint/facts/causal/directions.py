"""Triangles where every key is due, seen from around a site: its class, its arguments, other sizes.

What the masks of one site tell by themselves is in `mha_lint.facts.masks.direction`; here a second
call, docstrings and the place where a layer is made add to it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from mha_lint.capture import CaptureError, record
from mha_lint.facts.bench import Bench
from mha_lint.facts.causal.lines import (
    at_keyword,
    mask_nodes,
    may_be_given,
    tells_queries_apart,
    triangle_line,
)
from mha_lint.facts.causal.patterns import Pattern, patterns_of
from mha_lint.facts.causal.view import View
from mha_lint.facts.contract import CAUSAL_FLAGS, docstring_of
from mha_lint.facts.declaration import declared_at
from mha_lint.facts.influence import Entry, entries
from mha_lint.facts.masks.held import in_order, rows_of
from mha_lint.facts.masks.joins import meeting_of, triangle_node
from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.masks.patterns import pattern_at
from mha_lint.facts.masks.steps import steps_of
from mha_lint.facts.masks.words import sources_of
from mha_lint.facts.order import NotArrangedError
from mha_lint.facts.places import span_beside, span_of
from mha_lint.model.contract import Contract
from mha_lint.model.facts import Kind, Known, SiteFacts
from mha_lint.model.mask_facts import Masking
from mha_lint.model.mask_fit_facts import MaskFit, Triangle
from mha_lint.model.source import Span
from mha_lint.sites.finder import DATA_ERRORS
from mha_lint.sites.site import Site
from mha_lint.targets.subject import Subject

LONGER = 2
"""Positions that are added to a source, to see whether a triangle grows with the queries alone."""
_IN_STEP = re.compile(
    r"align|in step|synchron|stream|simultaneous|monotonic|wait[-_ ]?k|online|frame[-_ ]by[-_ ]frame"
    r"|per[-_ ]step|same (clock|time|step|length)|one (frame|feature)\w* per|parallel|causal\w*[\s_-]*cross"
    r"|cross\w*[\s_-]*causal|interaction|event|so far|up to|history|past",
    re.IGNORECASE,
)
"""Words of two sequences that run side by side."""
_BOTH_WAYS = re.compile(
    r"bi-?directional|full[- ]context|both directions|non-?causal"
    r"|(every|each|all) \w+ (sees?|reads?|attends? to) (all|every|the (whole|full|entire))",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(no|not|non|never|without( an?y?)?)[- ]?(a )?causal\w*( mask\w*)?", re.I)
_ONE_WAY = re.compile(
    r"causal|auto-?regress|decod|stream|online|uni-?directional|option|\bif\b|\bor\b|backward|left"
    r"|past|future|earlier|previous|prefix|generat|next",
    re.IGNORECASE,
)
"""Words of docstrings that speak of one direction as well."""


def with_directions(
    subject: Subject, bench: Bench, site: Site, facts: SiteFacts, contract: Contract
) -> SiteFacts:
    """Return `facts` with triangles, and lines, that only what stands around `site` tells of."""
    first = site.all[0]
    if isinstance(facts.mask_fit, Known) and first.score is not None:
        try:
            fit = _fit(subject, bench, first, facts.mask_fit.value, contract)
        except (NotArrangedError, *DATA_ERRORS):
            fit = facts.mask_fit.value
        facts = dataclasses.replace(facts, mask_fit=dataclasses.replace(facts.mask_fit, value=fit))
    if isinstance(facts.masking, Known) and facts.masking.value.squashed:
        masking = _caps_at_calls(bench, first, facts.masking.value)
        facts = dataclasses.replace(
            facts, masking=dataclasses.replace(facts.masking, value=masking)
        )
    return facts


def _fit(subject: Subject, bench: Bench, site: Site, fit: MaskFit, contract: Contract) -> MaskFit:
    if fit.inverted or any(m.kind == "source" for m in fit.misplaced):
        return fit
    cross = fit.causal_cross or _over_a_source(subject, bench, site)
    if cross is not None and _is_asked_for(bench, site):
        cross = None
    unwanted = fit.unwanted
    if unwanted is not None and not unwanted.certain and _has_mirror(bench, site):
        unwanted = None
    unwanted = unwanted or _said_to_see_both_ways(subject, bench, site, contract)
    return dataclasses.replace(
        fit,
        causal_cross=_where_made(subject, bench, site, cross),
        unwanted=_where_made(subject, bench, site, unwanted),
    )


# --- other sequences -------------------------------------------------------------------------------


def _over_a_source(subject: Subject, bench: Bench, site: Site) -> Triangle | None:
    """Return the triangle over keys that are no part of the queries' sequence, by a second call."""
    if site.kind is not Kind.CROSS:
        return None
    found = pattern_at(bench, site, square=False)
    if found is None or found.side != "earlier" or not found.whole:
        return None
    rows = rows_of(bench, site)
    keys, queries = rows.own(queries=False), rows.own(queries=True)
    if keys is None or queries is None or keys.argument == queries.argument:
        return None
    if may_be_given(bench, site) or any(
        _IN_STEP.search(s.text) for s in sources_of(subject, [site.scores])
    ):
        return None
    why = _grows_with_queries(subject, bench, site, keys)
    certain = bool(why)
    if not why and _is_read_by_tokens(bench, queries, keys) and _masks_itself(bench, site):
        why = (
            f"the keys come from {keys.argument}, which is given as a whole, and the queries from"
            f" the tokens {queries.argument}, whose own triangle this is"
        )
    if not why:
        return None
    visible = levels_of(bench, site).visible
    i, j = (int(x) for x in (~visible[0]).nonzero()[0])
    return Triangle(
        why, certain, _acts_at(bench, site), int(visible.shape[1]), int(visible.shape[2]),
        int((~visible[0]).sum()), f"query {i} does not see key {j}",
    )  # fmt: skip


def _is_asked_for(bench: Bench, site: Site) -> bool:
    """Return whether an argument says how many keys each query sees: no triangle is drawn without it."""
    apart = [n for n in mask_nodes(bench, site) if tells_queries_apart(bench, site, n)]
    return bool(apart) and all(bench.dependence.on_data(n) for n in apart)


def _acts_at(bench: Bench, site: Site) -> Span | None:
    """Return the line that hands the mask to the attention: that of torch's layers is the user's."""
    step = next((s for s in steps_of(bench, site) if s.fills or s.adds), None)
    return at_keyword(span_of(step.node if step is not None else site.scores))


def _grows_with_queries(subject: Subject, bench: Bench, site: Site, keys: Entry) -> str:
    """Return why a triangle makes no sense, if with a longer source it starts at its first key."""
    number = next(i for i, s in enumerate(bench.sites) if site in s.all)
    other = _recorded(_lengthened(subject, keys))
    if other is None or len(other.sites) != len(bench.sites):
        return ""
    longer = other.sites[number].all[0]
    if longer.score is None:
        return ""
    t_q, t_k = levels_of(other, longer).visible.shape[1:]
    found = pattern_at(other, longer, square=False)
    if found is None or t_q == t_k or found.side != "earlier" or found.offset != 0:
        return ""
    return (
        f"with {t_k} keys of {keys.argument} the {t_q} queries still start at key 0: the two sequences"
        " are not in step"
    )


def _lengthened(subject: Subject, keys: Entry) -> Subject | None:
    """Return `subject` with more positions in the argument of `keys`."""
    if keys.axis is None or keys.node.op != "placeholder":
        return None
    try:
        other = subject.rebuilt()
    except (Exception, SystemExit):
        return None
    given: dict[str, Any] = dict(
        zip(other.argument_names, [*other.args, *other.kwargs.values()], strict=False)
    )
    value = given.get(keys.argument)
    if not isinstance(value, Tensor) or value.dim() <= keys.axis:
        return None
    more = torch.cat(
        [value, value.narrow(keys.axis, 0, min(LONGER, value.shape[keys.axis]))], keys.axis
    )
    args = tuple(more if a is value else a for a in other.args)
    kwargs = {n: more if a is value else a for n, a in other.kwargs.items()}
    return dataclasses.replace(other, args=args, kwargs=kwargs)


def _recorded(subject: Subject | None) -> Bench | None:
    if subject is None:
        return None
    try:
        with subject.environment():
            made = record(
                subject.module, subject.args, subject.kwargs, argument_names=subject.argument_names
            )
        return Bench.of(made)
    except (CaptureError, *DATA_ERRORS):
        return None


def _is_read_by_tokens(bench: Bench, queries: Entry, keys: Entry) -> bool:
    """Return whether queries are tokens, one by one, and the keys features that came from elsewhere."""
    whole = {e.argument for e in entries(bench) if e.node.op != "placeholder"}
    return queries.argument in whole and keys.argument not in whole


def _masks_itself(bench: Bench, site: Site) -> bool:
    """Return whether another site, over the queries' own sequence, has a triangle as it should."""
    return any(
        m.kind is Kind.SELF and set(patterns_of(bench, m)) == {Pattern.CAUSAL}
        for s in bench.sites
        for m in s.all[:1]
        if m is not site and m.score is not None
    )


# --- encoders --------------------------------------------------------------------------------------


def _said_to_see_both_ways(
    subject: Subject, bench: Bench, site: Site, contract: Contract
) -> Triangle | None:
    """Return the triangle of a class whose docstring says outright that it sees in both directions."""
    if site.kind is not Kind.SELF or contract.entry("causal") is not None:
        return None
    if contract.denies("bidirectional") or may_be_given(bench, site):
        return None
    said = _says_both_ways(bench, site, subject)
    found = pattern_at(bench, site, square=True) if said else None
    if found is None or found.side != "earlier" or not in_order(rows_of(bench, site)):
        return None
    view = View.of(bench)
    if view.has(Pattern.REVERSE) or _has_mirror(bench, site) or view.whole()[1] is not True:
        return None
    visible = levels_of(bench, site).visible
    i, j = (int(x) for x in (~visible[0]).nonzero()[0])
    size = int(visible.shape[1])
    return Triangle(
        f"its docstring says “{said}”", False, _joined_or_made(bench, site), size, size,
        int((~visible[0]).sum()), f"query {i} does not see key {j}",
    )  # fmt: skip


def _has_mirror(bench: Bench, site: Site) -> bool:
    """Return whether another site with a triangle runs over the same positions from the end."""
    for other in bench.sites:
        one = other.all[0]
        if one is site or one.kind is not Kind.SELF or one.score is None:
            continue
        if set(patterns_of(bench, one)) == {Pattern.CAUSAL} and (
            in_order(rows_of(bench, one)) != in_order(rows_of(bench, site))
        ):
            return True
    return False


def _joined_or_made(bench: Bench, site: Site) -> Span | None:
    """Return the line that joins the triangle with the padding, else the one that makes it."""
    made = triangle_node(bench, site)
    meeting = meeting_of(bench, site, made) if made is not None else None
    return span_of(meeting) or triangle_line(bench, site)


def _says_both_ways(bench: Bench, site: Site, subject: Subject) -> str:
    """Return the words of a docstring around `site` that speak of both directions, and of no other."""
    texts = [docstring_of(m) for m in (*_around(bench, site), subject.module)]
    plain = [_DENIED.sub("bidirectional", t) for t in texts if t]
    if any(_ONE_WAY.search(t) for t in plain):
        return ""
    return next((m.group() for t in plain if (m := _BOTH_WAYS.search(t))), "")


def _around(bench: Bench, site: Site) -> list[nn.Module]:
    """Return the modules of the user that hold `site`, the innermost first, the subject left out."""
    found: list[nn.Module] = []
    module, path = bench.recording.module, str(site.context.meta.get("module", ""))
    while path and isinstance(module, nn.Module):
        try:
            one = module.get_submodule(path)
        except AttributeError:
            break
        found += [] if type(one).__module__.startswith("torch.") else [one]
        path = path.rpartition(".")[0]
    return found


# --- lines -----------------------------------------------------------------------------------------


def _where_made(
    subject: Subject, bench: Bench, site: Site, found: Triangle | None
) -> Triangle | None:
    """Return `found` at the line that makes the layer causal, where its constructor takes the flag."""
    if found is None:
        return None
    module = bench.recording.module
    path = str(site.context.meta.get("module", ""))
    around = _around(bench, site)
    if not path or not around or not isinstance(module, nn.Module):
        return found
    owner = around[0]
    taken = set(inspect.signature(type(owner).__init__).parameters)
    flags = [n for n in CAUSAL_FLAGS & taken if vars(owner).get(n) is True]
    if not flags or module.get_submodule(path) is not owner:
        return found
    if not _flag_makes_it(subject, bench, site, path, flags):
        return found
    return dataclasses.replace(found, span=declared_at(module, path) or found.span)


def _flag_makes_it(subject: Subject, bench: Bench, site: Site, path: str, flags: list[str]) -> bool:
    """Return whether `site` hides nothing once the flags of its module are off."""
    try:
        other = subject.rebuilt()
        owner = other.module.get_submodule(path) if isinstance(other.module, nn.Module) else None
    except (Exception, SystemExit):
        return False
    for flag in flags:
        setattr(owner, flag, False)
    number = next(i for i, s in enumerate(bench.sites) if site in s.all)
    without = _recorded(other)
    if without is None or len(without.sites) != len(bench.sites):
        return False
    here, there = levels_of(bench, site), levels_of(without, without.sites[number].all[0])
    return bool((there.visible & ~here.visible).any())


def _caps_at_calls(bench: Bench, site: Site, masking: Masking) -> Masking:
    """Return `masking` with each cap where the function that masks calls it, and not in a helper."""
    order, logits = bench.dependence.order, site.normaliser.logits
    above = sorted(bench.dependence.ancestors([logits]), key=order.__getitem__)

    def first(span: Span | None) -> Node | None:
        return next((n for n in above if span is not None and span_of(n) == span), None)

    moved = []
    for one in masking.squashed:
        cap, mask = first(one.span), first(one.masked_at)
        at = span_beside(cap, mask) if cap is not None and mask is not None else None
        moved.append(dataclasses.replace(one, span=at or one.span))
    return dataclasses.replace(masking, squashed=tuple(moved))
