"""The scale: the total gain from q.k to the softmax, its name at all measured sizes, its places."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from mha_lint.facts.bench import Bench
from mha_lint.facts.configured import configured
from mha_lint.facts.gain import (
    CONSTANT,
    HALVES,
    contraction_gain,
    factor_nodes,
    operand_gain,
    path_gain,
    score_gain,
    spread_of,
    weight_gain,
)
from mha_lint.facts.handed import by_layer, configured_as_one, handed_down
from mha_lint.facts.initial import init_ratio, made_up_for
from mha_lint.facts.output import OutputPath
from mha_lint.facts.places import span_of
from mha_lint.facts.readings import NEAR, by_construction, is_right, matching, stated_as
from mha_lint.facts.scale_designs import (
    all_projected,
    beside_rotation,
    mapped_again,
    own_kind,
    scale_cancels,
    score_terms,
    values_are_keys,
)
from mha_lint.facts.unsteady import unless_data_decides
from mha_lint.model.facts import Dims, Fact, Kind, Known, NotApplicable, Scale, ScaleFactor, Unknown
from mha_lint.model.source import Span
from mha_lint.sites.site import Site


@dataclass(frozen=True, slots=True)
class Measured:
    """The gains of one site at one size, before they are named."""

    value: float
    per_head: tuple[float, ...]
    normalised: tuple[str, ...]
    learned: bool
    factors: tuple[ScaleFactor, ...]
    after: float
    why: str = ""


def measure_gains(bench: Bench, site: Site, path: OutputPath | None) -> Measured | str:
    """Return the gains of `site`, or why they cannot be told."""
    first = site.all[0]
    if first.score is None or first.q is None or first.k is None:
        return "there is no product of q and k"
    q, k = operand_gain(bench, first.q), operand_gain(bench, first.k)
    inner, outer = contraction_gain(bench, first), score_gain(bench, first)
    factors, learned = _factors(bench, first)
    factors = (*factors, *_late_factors(bench, first, path))
    after = weight_gain(bench, first)
    if path is not None:
        after *= path_gain(bench, first.context, path.merged)
    normalised = tuple(name for name, gain in (("q", q), ("k", k)) if gain.normalised)
    if normalised:
        return Measured(outer.value or 1.0, outer.per_head, normalised, learned, factors, after)
    for name, gain in (("q", q), ("k", k), ("", outer)):
        if gain.value is None and not learned:
            return f"{name} {gain.why}".strip()
    if inner is None:
        return "the product of q and k is not taken plainly"
    total = inner * (q.value or 1.0) * (k.value or 1.0)
    heads = tuple(total * g for g in outer.per_head)
    return Measured(total * (outer.value or 1.0), heads, (), learned, factors, after)


def _factors(bench: Bench, site: Site) -> tuple[tuple[ScaleFactor, ...], bool]:
    """Return the places that scale q, k or the scores, and whether a Parameter does."""
    assert site.q is not None and site.k is not None and site.score is not None
    found: list[ScaleFactor] = []
    learned = False
    for on, operand in (("q", site.q), ("k", site.k)):
        if operand.source is None or operand.source.kind == "learned":
            continue
        for node, factor, by_parameter in factor_nodes(bench, operand.source.node, operand.node):
            learned |= by_parameter
            span = span_of(node)
            if factor is not None and not by_parameter and span is not None:
                found.append(ScaleFactor(factor, on, span))
    inner = contraction_gain(bench, site)
    at_score = span_of(site.score.node)
    if inner is not None and not math.isclose(inner, 1.0, rel_tol=1e-6) and at_score is not None:
        found.append(ScaleFactor(inner, "scores", at_score))
    for node, factor, by_parameter in factor_nodes(bench, site.scores, site.normaliser.logits):
        learned |= by_parameter
        span = span_of(node)
        if factor is not None and not by_parameter and span is not None:
            found.append(ScaleFactor(factor, "scores", span))
    return tuple(found), learned


def _late_factors(bench: Bench, site: Site, path: OutputPath | None) -> list[ScaleFactor]:
    """Return the places that scale the weights or the context."""
    ways = [(site.normaliser.weights, site.weights)]
    if path is not None:
        ways.append((site.context, path.merged))
    found: list[ScaleFactor] = []
    for start, end in ways:
        for node, factor, by_parameter in (
            factor_nodes(bench, start, end) if start is not end else ()
        ):
            span = span_of(node)
            if factor is not None and not by_parameter and span is not None:
                found.append(ScaleFactor(factor, "weights", span))
    return found


@unless_data_decides
def measure_scale(
    bench: Bench,
    site: Site,
    dims: Fact[Dims],
    path: OutputPath | None,
    other: tuple[Measured | str, Dims, Mapping[str, object]] | None,
    stated: Mapping[str, object],
) -> Fact[Scale]:
    """Return the scale of `site`; `other` holds the gains, sizes and arguments at a second size."""
    if site.kind in (Kind.LINEAR, Kind.CHANNEL):
        return NotApplicable(f"{site.kind} attention needs no 1/sqrt(head_dim)")
    if site.score is None:
        return NotApplicable("the scores are no product of queries and keys")
    if isinstance(dims, NotApplicable | Unknown):
        return dims
    at = dims.value
    if (
        at.num_heads == 1
        and not all_projected(site)
        and (bench.recording.parameters or values_are_keys(site))
    ):
        return NotApplicable(
            "one head without W_Q, W_K or W_V is Luong's attention, which has no scale"
        )
    found = measure_gains(bench, site, path)
    if isinstance(found, str):
        return Unknown(f"the scale could not be measured: {found}")
    if mapped_again(bench, site, found.value):
        return NotApplicable(
            "q is mapped once more, into a latent space: its first width sets the scale"
        )
    if scale_cancels(bench, site):
        return NotApplicable("the weights are divided by their sum, in which any scale cancels")
    terms = 1 + score_terms(bench, site)
    near = _rounding(bench, site)
    names = matching(found.value, at, terms, near)
    follows: bool | None = None
    if other is not None and not isinstance(other[0], str):
        second = matching(other[0].value, other[1], terms, near)
        both = [n for n in names if n in second]
        follows = bool(both) if names or second else None
        if not names and not second:
            moved = not math.isclose(other[0].value, found.value, rel_tol=1e-6)
            # With one and the same head_dim at both sizes, an unmoved scale may still depend on it.
            follows = moved or (None if other[1].head_dim == at.head_dim else False)
        # A reading that holds at one size only is a coincidence. The right one wins: a constant that
        # is right for the head_dim at hand does no harm here.
        names = both or [n for n in names if is_right(n, terms)]
        if not names and not math.isclose(other[0].value, found.value, rel_tol=1e-6):
            names = _construction_names((found.value, stated), (other[0].value, other[2]))
            follows = bool(names) or follows
    if not any(is_right(n, terms) for n in names):
        # A rotation whose tables carry a factor (YaRN) lengthens q and k beside the scale.
        names = beside_rotation(bench, site, found.value, at, terms) or names
    right = any(is_right(n, terms) for n in names)
    name = next((n for n in names if is_right(n, terms)), names[0] if names else None)
    if not right and not math.isclose(found.value, 1, rel_tol=1e-3) and own_kind(bench, site):
        return Unknown(
            "the normaliser is no softmax, and which of the factors are its own is not known"
        )
    if not right and bench.recording.drawn and math.isclose(found.value, 1, rel_tol=1e-3):
        return Unknown(
            "there is no scale, and the weights, which may make up for it, were never made"
        )
    ratio = init_ratio(bench, site)
    folded = made_up_for(bench, site, at.head_dim)
    after_names = (
        matching(found.after, at) if not math.isclose(found.after, 1.0, rel_tol=1e-6) else []
    )
    value = found.value
    evidence = (
        f"measured: where q . k, as projected, grows by 1, the softmax's input grows by {value:.6g}"
    )
    return Known(
        Scale(
            value=value,
            expected=at.head_dim**-0.5,
            named=name,
            coincident=tuple(n for n in names if n != name),
            per_head=found.per_head,
            right=right,
            normalised=bool(found.normalised),
            normalised_operands=found.normalised,
            learned=found.learned,
            stated=None if right else _deliberate(bench, site, found, at, stated, names),
            follows_size=follows,
            folded=folded,
            init_ratio=ratio,
            terms=terms,
            after=found.after,
            after_named=after_names[0] if after_names else None,
            factors=found.factors,
        ),
        evidence,
    )


def _rounding(bench: Bench, site: Site) -> float:
    """Return how far off a constant may be: that of a module in a half type has few bits."""
    types = {n.meta.get("dtype") for n in (site.scores, site.normaliser.logits)}
    halves = [torch.finfo(t).eps for t in types if t in HALVES]
    first = site.all[0]
    spreads = [spread_of(bench, o) for o in (first.q, first.k) if o is not None]
    return max([NEAR, *halves, *(s for s in spreads if s > CONSTANT)])


def _construction_names(*sizes: tuple[float, Mapping[str, object]]) -> list[str]:
    """Return the names of the construction's integers that give the scale at all sizes, short first."""
    found = [by_construction(value, stated) for value, stated in sizes]
    common = set.intersection(*(set(names) for names in found))
    return sorted(common, key=lambda name: (found[0][name], name))


def _deliberate(
    bench: Bench,
    site: Site,
    found: Measured,
    at: Dims,
    stated: Mapping[str, object],
    names: list[str],
) -> str | None:
    """Return what the user or a configuration sets the scale by, where it is no other than that."""
    if names[:1] == ["1"]:
        return configured_as_one(bench, site)
    return (
        _stated(found, at, {**stated, **configured(bench, site)})
        or by_layer(bench, site, found.value * at.head_dim**0.5)
        or handed_down(bench, site, found.value, named=bool(names))
    )


def _stated(found: Measured, at: Dims, stated: Mapping[str, object]) -> str | None:
    """Return the argument that sets the scale, or one of its factors (a temperature)."""
    beside = found.value * at.head_dim**0.5
    values = (found.value, beside, *(f.factor for f in found.factors if f.on != "weights"))
    names = (stated_as(value, stated) for value in values)
    return next((name for name in names if name is not None), None)


def scale_span(scale: Fact[Scale]) -> Span | None:
    """Return the last place that scales, where there is one."""
    if isinstance(scale, Known):
        before = [f for f in scale.value.factors if f.on != "weights"]
        return before[-1].span if before else None
    return None
