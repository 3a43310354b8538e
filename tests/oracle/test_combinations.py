"""Random combinations of deviations at the sizes without collisions: exactly those are named.

And right attention at random small sizes, ones included, is never anything but a match.
"""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from mha_lint.oracle import compare
from tests.oracle.conftest import (
    FIRST,
    SECOND,
    Make,
    Size,
    make_site,
    merge_right,
    softmax_over,
    split_channels_first,
    split_interleaved,
    split_right,
    split_view,
)

SPLITS = {
    "": split_right,
    "interleaved": split_interleaved,
    "a view without transpose": split_view,
    "a view of channels before positions": split_channels_first,
}
SCALES = {
    "": lambda s: s.head_dim**-0.5,
    "1": lambda _: 1.0,
    "1/sqrt(d_model)": lambda s: s.d_model**-0.5,
    "1/sqrt(T_k)": lambda s: s.t_k**-0.5,
}
WEIGHTS = {
    ("", ""): softmax_over(-1),
    ("softmax-axis", "queries"): softmax_over(-2),
    ("softmax-axis", "heads"): softmax_over(1),
    ("softmax-axis", "batch"): softmax_over(0),
    ("normaliser", "sigmoid"): torch.sigmoid,
    ("repeated-softmax", "keys twice"): lambda x: x.softmax(-1).softmax(-1),
}
MERGES = {
    "": merge_right,
    "order (h, T, B, d)": lambda y: y.permute(1, 2, 0, 3),
    "heads first, read as batch first": lambda y: y.transpose(0, 1),
}
OUTPUTS = {"": lambda m, w, b: m @ w.T + b, "absent": lambda m, _w, _b: m}


@pytest.mark.parametrize("seed", range(40))
def test_exactly_the_deviations_that_were_made(seed: int) -> None:
    draw = random.Random(seed)
    q, k, v = (draw.choice(list(SPLITS)) for _ in "qkv")
    scale, merge, output = (draw.choice(list(d)) for d in (SCALES, MERGES, OUTPUTS))
    weights = draw.choice(list(WEIGHTS))
    make = Make(
        split_q=SPLITS[q],
        split_k=SPLITS[k],
        split_v=SPLITS[v],
        scale=SCALES[scale],
        weigh=WEIGHTS[weights],
        merge=MERGES[merge],
        project=OUTPUTS[output],
    )
    made = [
        *(("split:" + x, name) for x, name in zip("qkv", (q, k, v), strict=True)),
        ("scale", scale),
        weights,
        ("merge", merge),
        ("output-projection", output),
    ]
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make))
    due = [(key, name) for key, name in made if name not in ("", "interleaved")]
    assert [(d.key, d.name) for d in verdict.deviations] == due
    assert (verdict.verdict, verdict.unexplained) == ("mismatch" if due else "match", False)
    for deviation in verdict.deviations:
        assert deviation.sentence.startswith("output equals the reference with ")
        assert deviation.max_difference < 1e-12


def hide_some(x: Tensor) -> Tensor:
    g = torch.Generator().manual_seed(0)
    return x.masked_fill(torch.rand(x.shape, generator=g) < 0.3, -math.inf)


def bias(x: Tensor) -> Tensor:
    g = torch.Generator().manual_seed(0)
    return x + torch.randn(x.shape, generator=g, dtype=x.dtype)


@pytest.mark.parametrize("seed", range(60))
def test_right_attention_of_any_size_is_a_match(seed: int) -> None:
    draw = random.Random(seed)

    def size() -> Size:
        heads = draw.choice([1, 1, 2, 3, 4, 6])
        return Size(
            batch=draw.choice([1, 2, 3]),
            t_q=draw.choice([1, 2, 3, 5, 8]),
            t_k=draw.choice([1, 2, 3, 5, 8]),
            heads=heads,
            kv_heads=draw.choice([n for n in range(1, heads + 1) if heads % n == 0]),
            head_dim=draw.choice([1, 2, 3, 4, 8]),
            seed=draw.randrange(999),
        )

    make = Make(bias=draw.choice([None, hide_some, bias]))
    verdict = compare(make_site(size(), make), make_site(size(), make))
    assert (verdict.verdict, verdict.deviations) == ("match", ())
    error, tolerance = verdict.max_abs_error, verdict.tolerance
    assert error is None or (tolerance is not None and error <= tolerance)
