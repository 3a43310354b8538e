"""The tensors of a site in the oracle's order, compared with attention computed from the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mha_lint.capture import Replay, record
from mha_lint.engine.arrange import Arranged, arrange, source_tensor
from mha_lint.facts.bench import Bench
from mha_lint.facts.order import NotArrangedError

B, T, H, D = 2, 5, 3, 4
C = H * D


class MHA(nn.Module):
    def __init__(self, attend: Callable[..., Tensor]) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(C, C), nn.Linear(C, C), nn.Linear(C, C)
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(self.q(x), self.k(x), self.v(x))


def heads(z: Tensor) -> Tensor:
    return z.view(B, T, H, D).transpose(1, 2)


def matmul(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (heads(q) @ heads(k).mT / 2).softmax(-1) @ heads(v)


def einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (z.view(B, T, H, D) for z in (q, k, v))
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2
    return torch.einsum("bhqk,bkhd->bqhd", s.softmax(-1), v)


def heads_last(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (z.view(B, T, H, D) for z in (q, k, v))
    s = torch.einsum("bqhd,bkhd->bqkh", q, k) / 2
    return torch.einsum("bqkh,bkhd->bqhd", s.softmax(2), v)


def folded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (heads(z).reshape(B * H, T, D) for z in (q, k, v))
    return torch.bmm((torch.bmm(q, k.mT) / 2).softmax(-1), v)


def key_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (heads(k) @ heads(q).mT / 2).softmax(-2).mT @ heads(v)


def scaled_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (heads(q / 2) @ heads(k).mT).softmax(-1) @ heads(v)


def arranged(attend: Callable[..., Tensor], bias: Any = None) -> tuple[Arranged, Bench, Replay]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    bench = Bench.of(record(MHA(attend), (torch.randn(B, T, C),), {}))
    (site,) = bench.sites
    return arrange(bench, site, bench.replay), bench, bench.replay


def expected(bench: Bench, scale_q: float = 1.0) -> dict[str, Tensor]:
    def projected(name: str) -> Tensor:
        node = next(
            n
            for n in bench.recording.graph.nodes
            if n.meta.get("op") == "linear"
            and any(a.meta.get("parameter") == f"{name}.weight" for a in n.all_input_nodes)
        )
        value: Tensor = bench.replay.base(node)
        return value

    q, k, v = (heads(projected(n)).reshape(B * H, T, D) for n in "qkv")
    raw = q * scale_q @ k.mT
    logits = q @ k.mT / 2
    weights = logits.softmax(-1)
    return {
        "q": q * scale_q,
        "k": k,
        "v": v,
        "raw": raw,
        "logits": logits,
        "weights": weights,
        "context": weights @ v,
    }


@pytest.mark.parametrize(
    ("attend", "scale_q"),
    [
        (matmul, 1.0),
        (einsum, 1.0),
        (heads_last, 1.0),
        (folded, 1.0),
        (key_first, 1.0),
        (scaled_first, 0.5),
    ],
)
def test_the_order_of_every_spelling(attend: Callable[..., Tensor], scale_q: float) -> None:
    found, bench, _ = arranged(attend)
    due = expected(bench, scale_q)
    for name in ("q", "k", "v"):
        torch.testing.assert_close(getattr(found, name).value, due[name])
    for name in ("raw", "logits", "weights", "context"):
        torch.testing.assert_close(getattr(found, name), due[name])
    torch.testing.assert_close(found.additive, torch.zeros(B * H, T, T, dtype=torch.float64))
    assert found.native is None


def test_sources_are_the_projections_as_they_come() -> None:
    found, bench, replay = arranged(matmul)
    (site,) = bench.sites
    for name, operand in (("q", site.q), ("k", site.k), ("v", site.v)):
        assert operand is not None and operand.source is not None
        source = getattr(found, name).source
        assert source.shape == (B, T, C)
        torch.testing.assert_close(source, replay.base(operand.source.node))
        torch.testing.assert_close(source_tensor(bench, operand, source), source)
        assert getattr(found, name).opaque is None


def test_what_is_added_to_the_scores() -> None:
    bias = torch.linspace(-1, 1, H * T * T).view(H, T, T)

    def biased(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = heads(q) @ heads(k).mT / 2 + bias
        return s.masked_fill(torch.ones(T, T).triu(1).bool(), -1e9).softmax(-1) @ heads(v)

    found, _, _ = arranged(biased)
    due = bias.double().masked_fill(torch.ones(T, T).triu(1).bool(), -1e9)
    torch.testing.assert_close(found.additive.view(B, H, T, T), due.expand(B, H, T, T))


def test_a_fused_projection_gives_each_operand_its_share() -> None:
    class Fused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(C, 3 * C)

        def forward(self, x: Tensor) -> Tensor:
            return matmul(*self.qkv(x).chunk(3, -1))

    torch.manual_seed(0)
    bench = Bench.of(record(Fused(), (torch.randn(B, T, C),), {}))
    (site,) = bench.sites
    found = arrange(bench, site, bench.replay)
    assert site.q is not None and site.q.source is not None
    whole = bench.replay.base(site.q.source.node)
    for i, operand in enumerate((found.q, found.k, found.v)):
        assert operand.source is not None
        torch.testing.assert_close(operand.source, whole[..., C * i : C * i + C])


def test_mixed_heads_have_no_such_order() -> None:
    mix = torch.randn(H, H)

    def talking(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = torch.einsum("bhqk,hg->bgqk", heads(q) @ heads(k).mT, mix)
        return s.softmax(-1) @ heads(v)

    with pytest.raises(NotArrangedError, match="mixed between scores and weights"):
        arranged(talking)


def test_a_rotation_is_opaque_to_the_oracle() -> None:
    turn = torch.linalg.qr(torch.randn(D, D))[0]

    def rotated(q: Tensor, k: Tensor, v: Tensor) -> Any:
        return (heads(q) @ turn @ (heads(k) @ turn).mT / 2).softmax(-1) @ heads(v)

    found, bench, _ = arranged(rotated)
    assert found.q.opaque is not None
    assert found.v.opaque is None
    torch.testing.assert_close(found.raw, expected(bench)["raw"], rtol=1e-5, atol=1e-5)
