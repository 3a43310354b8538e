"""One order for a site's tensors: groups (samples and heads), queries, keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.facts.order import NotArrangedError, order_of, score_operands
from tests.facts.conftest import PLAIN
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

ALIKE = ["einsum", "bmm", "key-first", "fused", "sdpa"]


@pytest.mark.parametrize("name", ALIKE)
def test_scores_logits_and_weights_in_one_order(name: str, measured: Measure) -> None:
    spelled = SPELLINGS[name]
    bench = measured(text=spelled.text).bench
    site = bench.sites[0].all[0]
    order, replay = order_of(bench, site), bench.replay
    scores = replay.base(site.scores).reshape(-1)[order.natural].reshape(8, 5, 5)
    q, k = score_operands(site, replay)
    torch.testing.assert_close(scores, torch.einsum("gid,gjd->gij", q, k))
    logits = replay.base(site.normaliser.logits).reshape(-1)[order.logits]
    weights = replay.base(site.weights).reshape(-1)[order.weights]
    torch.testing.assert_close(weights, logits.softmax(-1))


def test_operands_are_those_of_each_sample_and_head(measured: Measure) -> None:
    bench = measured().bench
    q, k = score_operands(bench.sites[0], bench.replay)
    assert q.shape == k.shape == (8, 5, 6)
    site = bench.sites[0]
    assert site.q is not None
    torch.testing.assert_close(q[5], bench.replay.base(site.q.node)[1, 1])


def test_shared_keys_are_repeated_for_each_head(measured: Measure) -> None:
    text = PLAIN.replace(
        "self.k_proj = nn.Linear(d_model, d_model)", "self.k_proj = nn.Linear(d_model, self.d_k)"
    ).replace(
        "self.k_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)", "self.k_proj(x)[:, None]"
    )
    bench = measured(text=text).bench
    _, k = score_operands(bench.sites[0], bench.replay)
    assert k.shape == (8, 5, 6)
    assert torch.equal(k[0], k[3]) and not torch.equal(k[0], k[4])


def test_mixed_heads_have_no_order(measured: Measure) -> None:
    text = PLAIN.replace(
        "        weights =",
        "        scores = torch.einsum('bhij,hg->bgij', scores, self.mix)\n        weights =",
    ).replace(
        "        self.out_proj =",
        "        self.mix = nn.Parameter(torch.randn(num_heads, num_heads))\n        self.out_proj =",
    )
    bench = measured(text=text).bench
    with pytest.raises(NotArrangedError, match="heads are mixed"):
        order_of(bench, bench.sites[0])


def test_what_all_heads_get_alike_has_no_order(measured: Measure) -> None:
    mean = "weights.mean(1, keepdim=True).expand_as(weights)"
    bench = measured(("weights @ v", f"{mean} @ v")).bench
    with pytest.raises(NotArrangedError, match="heads are mixed"):
        order_of(bench, bench.sites[0])
    renormalised = "(weights.tril() / weights.tril().sum(-1, keepdim=True)) @ v"
    bench = measured(("weights @ v", renormalised)).bench
    assert order_of(bench, bench.sites[0]).weights.shape == (8, 5, 5)


def test_additive_scores_have_no_operands(measured: Measure) -> None:
    text = """\
class Additive(nn.Module):
    def __init__(self, d, a):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, a), nn.Linear(d, a), nn.Linear(a, 1)

    def forward(self, x, memory):
        e = self.v(torch.tanh(self.q(x)[:, :, None] + self.k(memory)[:, None])).squeeze(-1)
        return e.softmax(-1) @ memory
"""
    call = "torch.randn(2, 3, 8), torch.randn(2, 4, 8)"
    bench = measured(text=text, build="Additive(8, 6)", call=call).bench
    with pytest.raises(NotArrangedError, match="no product of queries and keys"):
        order_of(bench, bench.sites[0])
