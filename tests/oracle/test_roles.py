"""Roles: operands that come from another projection than the one that is due."""

from __future__ import annotations

from dataclasses import replace

import torch

from mha_lint.oracle import SiteData, compare, confirm
from tests.oracle.conftest import FIRST, SECOND, Make, Size, make_site


def recomputed(site: SiteData) -> SiteData:
    """Return `site` with all that follows from its operands computed anew."""
    raw = site.q.value @ site.k.value.mT
    logits = raw * site.head_dim**-0.5
    weights = logits.softmax(-1)
    context = weights @ site.v.value
    b, t = site.batch, raw.shape[1]
    heads = context.view(b, site.heads, t, -1)
    merged = heads.transpose(1, 2).reshape(b, t, -1)
    assert site.output_weight is not None and site.output_bias is not None
    return replace(
        site,
        raw=raw,
        logits=logits,
        weights=weights,
        context=context,
        merged=merged,
        output=merged @ site.output_weight.T + site.output_bias,
    )


def values_from_keys(size: Size, *, due: bool) -> SiteData:
    site = make_site(size)
    v = replace(site.k, due=site.v.source if due else None)
    return recomputed(replace(site, v=v))


def test_values_made_by_the_key_projection() -> None:
    verdict = compare(values_from_keys(FIRST, due=True), values_from_keys(SECOND, due=True))
    assert verdict.departs_at == "operands"
    assert [(d.stage, d.key, d.name) for d in verdict.deviations] == [
        ("operands", "roles", "v from the key projection")
    ]
    sentence = confirm(verdict, "roles")
    assert sentence is not None
    start = "output equals the reference with values made by the key projection (max difference "
    assert sentence.startswith(start)
    assert verdict.max_abs_error is not None and verdict.max_abs_error > 1e-3


def test_a_shared_source_is_observed_but_no_fault_by_itself() -> None:
    verdict = compare(values_from_keys(FIRST, due=False))
    assert (verdict.verdict, verdict.deviations) == ("match", ())
    assert confirm(verdict, "roles") == (
        "operands equal the reference's with values made by the key projection (max difference 0)"
    )


def test_due_source_that_is_used_is_right() -> None:
    site = make_site(FIRST)
    assert compare(replace(site, v=replace(site.v, due=site.v.source))).verdict == "match"


def test_source_with_a_name_of_its_own() -> None:
    def wrong(size: Size) -> SiteData:
        site = make_site(size)
        g = torch.Generator().manual_seed(9)
        source = site.q.source
        assert source is not None
        other = torch.randn(source.shape, generator=g, dtype=torch.float64)
        value = other.view(size.batch, size.t_q, size.heads, -1).transpose(1, 2).flatten(0, 1)
        q = replace(site.q, value=value, source=other, due=source)
        return recomputed(replace(site, q=q, named_sources={"W_q of the memory": other}))

    verdict = compare(wrong(FIRST), wrong(SECOND))
    assert [(d.key, d.name) for d in verdict.deviations] == [("roles", "q from W_q of the memory")]


def test_scores_of_keys_with_keys() -> None:
    def wrong(size: Size) -> SiteData:
        site = make_site(size)
        raw = site.k.value @ site.k.value.mT
        logits = raw * site.head_dim**-0.5
        weights = logits.softmax(-1)
        context = weights @ site.v.value
        changed = replace(site, raw=raw, logits=logits, weights=weights, context=context)
        return replace(changed, merged=None)

    verdict = compare(wrong(FIRST), wrong(SECOND))
    assert [(d.stage, d.key, d.name) for d in verdict.deviations] == [
        ("scores", "roles", "scores of keys and keys")
    ]
    sentence = confirm(verdict, "roles")
    assert sentence is not None
    assert sentence.startswith("context equals the reference with scores of keys and keys (max")


def test_keys_of_other_samples() -> None:
    def wrong(size: Size) -> SiteData:
        site = make_site(size)
        k = site.k.value.roll(size.heads, 0)
        v = site.v.value.roll(size.heads, 0)
        return recomputed(replace(site, k=replace(site.k, value=k), v=replace(site.v, value=v)))

    verdict = compare(wrong(FIRST), wrong(SECOND))
    name = "paired with queries of other samples"
    assert [(d.key, d.name) for d in verdict.deviations] == [("split:k", name), ("split:v", name)]
    sentence = confirm(verdict, "split")
    assert sentence is not None and f"keys and values {name}" in sentence


def test_keys_of_other_heads_from_group_to_group() -> None:
    """Queries folded as (B, h), keys as (h, B): the samples happen to fit, the heads do not."""

    def wrong(size: Size) -> SiteData:
        site = make_site(size)
        swap = torch.arange(size.batch * size.heads).view(size.batch, size.heads)
        swap[0] = swap[0].flip(0)
        k = site.k.value[swap.flatten()]
        return recomputed(replace(site, k=replace(site.k, value=k)))

    verdict = compare(wrong(FIRST), wrong(SECOND))
    name = "paired with other heads from group to group"
    assert [(d.key, d.name) for d in verdict.deviations] == [("split:k", name)]


def test_heads_of_values_in_another_fixed_order_are_right() -> None:
    site = make_site(FIRST)
    order = torch.arange(15).view(3, 5).flip(1).flatten()
    changed = recomputed(replace(site, v=replace(site.v, value=site.v.value[order])))
    assert compare(changed).verdict == "match"


def test_context_of_the_keys_is_told_from_a_right_one() -> None:
    make = Make(context=lambda w, k, _: w @ k)
    verdict = compare(make_site(FIRST, make))
    assert verdict.departs_at == "context"
