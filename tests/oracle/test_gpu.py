"""The same verdicts on an accelerator."""

from __future__ import annotations

import pytest
import torch

from mha_lint.oracle import compare, confirm
from mha_lint.oracle.half import half_bound, plain_attention
from tests.oracle.conftest import FIRST, SECOND, Make, make_site, softmax_over, split_view

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


def test_right_site_matches() -> None:
    verdict = compare(make_site(FIRST), make_site(SECOND), device="cuda")
    assert verdict.verdict == "match"


@pytest.mark.parametrize(
    ("make", "key", "name"),
    [
        (Make(weigh=softmax_over(1)), "softmax-axis", "heads"),
        (Make(scale=lambda _: 1.0), "scale", "1"),
        (Make(split_k=split_view), "split:k", "a view without transpose"),
        (Make(merge=lambda y: y), "merge", "reshape without transpose"),
    ],
)
def test_deviation_is_named(make: Make, key: str, name: str) -> None:
    verdict = compare(make_site(FIRST, make), make_site(SECOND, make), device="cuda")
    assert [(d.key, d.name) for d in verdict.deviations] == [(key, name)]
    sentence = confirm(verdict, key)
    assert sentence is not None and sentence.startswith("output equals the reference with")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fused_attention_keeps_the_half_precision_bound(dtype: torch.dtype) -> None:
    fused = torch.nn.functional.scaled_dot_product_attention
    shape = (2, 4, 64, 64)
    for run in (plain_attention, fused):
        found = half_bound(run, q_shape=shape, k_shape=shape, dtype=dtype, device="cuda")
        assert not found.exceeded
