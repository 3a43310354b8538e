"""Right attention, in the shapes and designs it comes in, is a match and never a false alarm."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mha_lint.oracle import Native, SiteData, compare
from tests.oracle.conftest import (
    CROSS_FIRST,
    CROSS_SECOND,
    FIRST,
    SECOND,
    Make,
    Size,
    make_site,
    merge_right,
    split_heads_first,
    split_interleaved,
    split_right,
)

GQA_FIRST = Size(heads=6, kv_heads=2)
GQA_SECOND = Size(t_q=11, t_k=11, heads=4, kv_heads=2, seed=1)
RIGHT = Make()


def causal(x: Tensor) -> Tensor:
    return x.masked_fill(torch.ones(x.shape[-2:], dtype=torch.bool).triu(1), -math.inf)


def drowned(x: Tensor) -> Tensor:
    return x + torch.ones(x.shape[-2:], dtype=x.dtype).triu(1) * -1e9


def minimum(x: Tensor) -> Tensor:
    hidden = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return x + torch.zeros_like(x).masked_fill(hidden, torch.finfo(torch.float32).min)


def filled(x: Tensor) -> Tensor:
    return x.masked_fill(torch.ones(x.shape[-2:], dtype=torch.bool).triu(1), -1e9)


def alibi(x: Tensor) -> Tensor:
    slopes = 2.0 ** -torch.arange(1, x.shape[1] + 1, dtype=x.dtype)
    distance = torch.arange(x.shape[-1])[None] - torch.arange(x.shape[-2])[:, None]
    return x + slopes[:, None, None] * distance


def padded_samples(x: Tensor) -> Tensor:
    hidden = torch.zeros(x.shape[0], 1, 1, x.shape[-1], dtype=torch.bool)
    hidden[0, ..., -2:] = True
    return x.masked_fill(hidden, -math.inf)


def assert_match(first: SiteData, second: SiteData | None = None, note: str = "") -> None:
    verdict = compare(first, second)
    assert (verdict.verdict, verdict.departs_at, verdict.deviations) == ("match", None, ())
    assert not verdict.unexplained
    assert verdict.max_abs_error is not None and verdict.tolerance is not None
    assert verdict.max_abs_error <= verdict.tolerance < 1e-7
    assert note in "; ".join(verdict.notes)
    assert verdict.explanation == ("; ".join(verdict.notes) or None)


SHAPES = {
    "self": (FIRST, SECOND, RIGHT),
    "cross": (CROSS_FIRST, CROSS_SECOND, RIGHT),
    "grouped": (GQA_FIRST, GQA_SECOND, RIGHT),
    "interleaved heads": (
        FIRST,
        SECOND,
        Make(split_q=split_interleaved, split_k=split_interleaved, split_v=split_interleaved),
    ),
    "interleaved values alone": (FIRST, SECOND, Make(split_v=split_interleaved)),
    "groups head-major": (
        FIRST,
        SECOND,
        Make(
            split_q=split_heads_first,
            split_k=split_heads_first,
            split_v=split_heads_first,
            merge=lambda y: merge_right(y.transpose(0, 1)),
        ),
    ),
    "merged as (d, h)": (FIRST, SECOND, Make(merge=lambda y: y.permute(0, 2, 3, 1))),
    "scale on the queries": (
        FIRST,
        SECOND,
        Make(gain_q=lambda s: s.head_dim**-0.5, scale=lambda _: 1.0),
    ),
    "half the scale on the queries": (
        FIRST,
        SECOND,
        Make(gain_q=lambda s: s.head_dim**-0.25, scale=lambda s: s.head_dim**-0.25),
    ),
    "no fixed scale due": (FIRST, SECOND, Make(scale=lambda _: 0.123, due=False)),
    "learned temperature per head": (
        FIRST,
        SECOND,
        Make(due=False, adjust=lambda x: x * torch.arange(1.0, x.shape[1] + 1)[:, None, None]),
    ),
    "causal, -inf": (FIRST, SECOND, Make(bias=causal)),
    "causal, -1e9 added": (FIRST, SECOND, Make(bias=drowned)),
    "causal, -1e9 filled": (FIRST, SECOND, Make(bias=filled)),
    "causal, minimum of float32": (FIRST, SECOND, Make(bias=minimum)),
    "padding of one sample": (FIRST, SECOND, Make(bias=padded_samples)),
    "ALiBi": (FIRST, SECOND, Make(bias=alibi)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_masks(name: str) -> None:
    first, second, make = SHAPES[name]
    assert_match(make_site(first, make), make_site(second, make))


def test_tiled_groups_are_a_fixed_map_too() -> None:
    def tiled(z: Tensor, d: int) -> Tensor:
        return split_right(z, d).repeat(1, 3, 1, 1)

    size = Size(heads=6, kv_heads=2)
    right = make_site(size)
    own = make_site(replace(size, kv_heads=6))
    assert_match(right)
    source = right.k.source
    assert source is not None
    k = replace(right.k, value=tiled(source, 6).flatten(0, 1))
    raw = right.q.value @ k.value.mT
    logits = raw * 6**-0.5
    weights = logits.softmax(-1)
    context = weights @ right.v.value
    site = replace(
        right, k=k, raw=raw, logits=logits, weights=weights, context=context, merged=None
    )
    assert_match(site)
    assert own.raw.shape == site.raw.shape


@pytest.mark.parametrize("size", [Size(t_q=1, t_k=1), Size(heads=1, kv_heads=1), Size(batch=1)])
def test_sizes_of_one_are_no_false_identification(size: Size) -> None:
    assert_match(make_site(size))


def test_one_key_makes_all_normalisers_over_keys_equal_and_the_right_one_wins() -> None:
    twice = Make(weigh=lambda x: x.softmax(-1).softmax(-1))
    assert_match(make_site(Size(t_k=1), twice))


@pytest.mark.parametrize("left", ["nan", "zero", "uniform"])
def test_rows_without_any_key_are_not_compared(left: str) -> None:
    def hide(x: Tensor) -> Tensor:
        hidden = torch.zeros(x.shape[-2:], dtype=torch.bool)
        hidden[2] = True
        return x.masked_fill(hidden, -math.inf)

    def weigh(x: Tensor) -> Tensor:
        w = x.softmax(-1)
        return {"nan": w, "zero": w.nan_to_num(0.0), "uniform": w.nan_to_num(0.1)}[left]

    make = Make(bias=hide, weigh=weigh)
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    assert (verdict.verdict, verdict.deviations) == ("match", ())


DESIGNS = {
    "softmax with one more zero logit": Make(
        weigh=lambda x: x.exp() / (1 + x.exp().sum(-1, keepdim=True))
    ),
    "softmax renormalised over a part of the keys": Make(
        weigh=lambda x: (lambda w, kept: w * kept / (w * kept).sum(-1, keepdim=True))(
            x.softmax(-1), x >= x.topk(4).values[..., -1:]
        )
    ),
    "scores are capped at 3": Make(adjust=lambda x: 3 * torch.tanh(x / 3)),
    # Of scores this small a cap hardly shows, and is found all the same.
    "scores are capped at 4e+04": Make(adjust=lambda x: 4e4 * torch.tanh(x / 4e4)),
    "heads are mixed before the normaliser": Make(
        adjust=lambda x: torch.einsum("bhij,hg->bgij", x, mixture(x.shape[1]))
    ),
    "heads are mixed after the softmax": Make(
        weigh=lambda x: torch.einsum("bhij,hg->bgij", x.softmax(-1), mixture(x.shape[1]))
    ),
}


def mixture(heads: int) -> Tensor:
    g = torch.Generator().manual_seed(heads)
    return torch.randn(heads, heads, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("note", DESIGNS)
def test_designs_are_recognised(note: str) -> None:
    make = DESIGNS[note]
    assert_match(make_site(FIRST, make), make_site(SECOND, make), note)


def test_softcap_does_not_hide_a_wrong_scale() -> None:
    make = Make(scale=lambda s: 1 / s.head_dim, adjust=lambda x: 3 * torch.tanh(x / 3))
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    assert [(d.key, d.name) for d in verdict.deviations] == [("scale", "1/head_dim")]


def test_sparsemax_is_a_design() -> None:
    x = torch.tensor([[[0.5, 0.2, -3.0]]], dtype=torch.float64)
    due = torch.tensor([[[0.65, 0.35, 0.0]]], dtype=torch.float64)
    site = make_site(Size(batch=1, t_q=1, t_k=3, heads=1, kv_heads=1))
    scale = 6**-0.5
    additive = x - site.raw * scale
    context = due @ site.v.value
    site = replace(site, logits=x, additive=additive, weights=due, context=context, merged=None)
    verdict = compare(site)
    assert verdict.notes == ("sparsemax over the keys",)
    assert verdict.verdict == "match"


def test_sinks_take_part_in_the_softmax() -> None:
    def with_sink(size: Size) -> SiteData:
        site = make_site(size)
        g, t_q, t_k = site.raw.shape
        full = torch.cat((site.logits, torch.full((g, t_q, 1), 0.7, dtype=torch.float64)), -1)
        index = torch.arange(full.numel()).view(full.shape)[..., :t_k]
        weights = full.softmax(-1)[..., :t_k]
        context = weights @ site.v.value
        return replace(
            site, weights=weights, context=context, native=Native(full, index), merged=None
        )

    note = "the softmax runs over more than the scores (sinks)"
    assert_match(with_sink(FIRST), with_sink(SECOND), note)


def rotated(z: Tensor) -> Tensor:
    """Rotate (G, T, D) pairs of channels by angles that grow with the position."""
    angle = torch.arange(z.shape[1], dtype=z.dtype)[:, None] * torch.tensor([1.0, 0.1, 0.01])
    a, b = z.chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)


def rotary(size: Size, gain: float, scale: float) -> SiteData:
    site = make_site(size)
    q = rotated(site.q.value) * gain
    k = rotated(site.k.value)
    raw = q @ k.mT
    logits = raw * scale
    weights = logits.softmax(-1)
    context = weights @ site.v.value
    return replace(
        site,
        q=replace(site.q, value=q, opaque="rotated"),
        k=replace(site.k, value=k, opaque="rotated"),
        raw=raw,
        logits=logits,
        weights=weights,
        context=context,
        merged=None,
    )


def test_rotary_operands_keep_their_norms_so_the_gain_is_known() -> None:
    assert_match(rotary(FIRST, 1.0, 6**-0.5), rotary(SECOND, 1.0, 6**-0.5))
    assert_match(rotary(FIRST, 6**-0.5, 1.0), rotary(SECOND, 6**-0.5, 1.0))
    verdict = compare(rotary(FIRST, 6**-0.5, 6**-0.5), rotary(SECOND, 6**-0.5, 6**-0.5))
    assert verdict.notes[0] == "the split of the q operand was not compared: rotated"
    due = compare(rotary(FIRST, 1.0, 1 / 6)).max_abs_error
    assert verdict.max_abs_error == pytest.approx(due, abs=1e-12)
    assert [(d.key, d.name) for d in verdict.deviations] == [("scale", "1/head_dim")]


def test_windows_of_positions_are_groups_of_their_own() -> None:
    """(B, T, C) cut into windows of 3 rolled positions: groups are sample x window x head."""
    b, windows, width, h, d = 2, 3, 3, 2, 6
    t, c = windows * width, h * d
    base = make_site(Size(batch=b, t_q=t, t_k=t, heads=h, kv_heads=h))

    def cut(z: Tensor) -> Tensor:
        rolled = z.roll(-1, 1).view(b, windows, width, h, d)
        return rolled.permute(0, 1, 3, 2, 4).reshape(-1, width, d)

    sources = [o.source for o in (base.q, base.k, base.v)]
    q, k, v = (cut(s) for s in sources if s is not None)
    raw = q @ k.mT
    logits = raw * d**-0.5
    weights = logits.softmax(-1)
    context = weights @ v
    back = context.view(b, windows, h, width, d).permute(0, 1, 3, 2, 4).reshape(b, t, c)
    merged = back.roll(1, 1)
    assert base.output_weight is not None and base.output_bias is not None
    site = replace(
        base,
        q=replace(base.q, value=q),
        k=replace(base.k, value=k),
        v=replace(base.v, value=v),
        raw=raw,
        logits=logits,
        weights=weights,
        context=context,
        merged=merged,
        output=merged @ base.output_weight.T + base.output_bias,
    )
    assert_match(site)
    wrong = replace(site, merged=back, output=back @ base.output_weight.T + base.output_bias)
    assert [d.key for d in compare(wrong).deviations] == ["merge"]


def test_operand_that_is_no_gather_is_noted_and_not_judged() -> None:
    site = make_site(FIRST)
    q = site.q.value.exp()
    raw = q @ site.k.value.mT
    logits = raw * 6**-0.5
    weights = logits.softmax(-1)
    changed = replace(
        site,
        q=replace(site.q, value=q),
        raw=raw,
        logits=logits,
        weights=weights,
        context=weights @ site.v.value,
        merged=None,
    )
    verdict = compare(changed)
    assert (verdict.verdict, verdict.deviations) == ("match", ())
    assert verdict.notes == (
        "the q operand is no rearrangement of its projection's output, so its split was not"
        " compared",
    )


def test_norm_between_context_and_projection_is_noted_and_not_judged() -> None:
    make = Make(merge=lambda y: torch.nn.functional.layer_norm(merge_right(y), (30,)))
    verdict = compare(make_site(FIRST, make))
    assert (verdict.verdict, verdict.unexplained) == ("match", False)
    note = "what is projected is no rearrangement of the context, so the merge was not compared"
    assert verdict.notes == (note,)


def test_right_sites_take_milliseconds() -> None:
    first, second = make_site(FIRST), make_site(SECOND)
    compare(first, second)
    best = math.inf
    for _ in range(5):
        start = time.perf_counter()
        compare(first, second)
        best = min(best, time.perf_counter() - start)
    assert best < 0.03
