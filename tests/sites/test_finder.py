"""Which computations are attention sites, of which kind, and which are none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mha_lint.facts.bench import Bench

Find = Callable[..., Bench]


class Layer(nn.Module):
    """Runs a function with a stock of maps, so that each case is one expression."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.o, self.up, self.down = nn.Linear(12, 12), nn.Linear(12, 30), nn.Linear(30, 12)
        self.gate, self.one = nn.Linear(12, 4), nn.Linear(12, 1)
        self.table = nn.Embedding(9, 12)
        self.asks = nn.Parameter(torch.randn(3, 12))
        self.experts = nn.Parameter(torch.randn(4, 12, 12))
        self.talk = nn.Parameter(torch.randn(3, 3))
        self.run = forward

    def split(self, z: Tensor) -> Tensor:
        return z.view(*z.shape[:2], 3, 4).transpose(1, 2)

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


def heads(m: Layer, x: Tensor, y: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    y = x if y is None else y
    return m.split(m.q(x)), m.split(m.k(y)), m.split(m.v(y))


def plain(m: Layer, x: Tensor) -> Tensor:
    q, k, v = heads(m, x)
    return (q @ k.mT / 2).softmax(-1) @ v


def talking(m: Layer, x: Tensor) -> Tensor:
    q, k, v = heads(m, x)
    s = torch.einsum("bhqk,hg->bgqk", q @ k.mT / 2, m.talk).softmax(-1)
    return torch.einsum("bhqk,hg->bgqk", s, m.talk) @ v


def key_first(m: Layer, x: Tensor) -> Tensor:
    q, k, v = heads(m, x)
    return (k @ q.mT / 2).softmax(-2).mT @ v


def no_softmax(m: Layer, x: Tensor) -> Tensor:
    q, k, v = heads(m, x)
    return (q @ k.mT / 2) @ v


def axial(m: Layer, x: Tensor) -> Tensor:
    q, k, v = (w(x) for w in (m.q, m.k, m.v))
    s = torch.einsum("bhwc,bhuc->bhwu", q, k).softmax(-1)
    return torch.einsum("bhwu,bhuc->bhwc", s, v)


def cached(m: Layer, x: Tensor, past: Tensor) -> Any:
    k, v = torch.cat((past, m.k(x)), 1), torch.cat((past, m.v(x)), 1)
    return (m.q(x) @ k.mT / 2).softmax(-1) @ v


def relative(m: Layer, x: Tensor) -> Tensor:
    q, k, v = heads(m, x)
    table = m.experts[0, :5, :4]
    return ((q @ k.mT + torch.einsum("bhqd,kd->bhqk", q, table)) / math.sqrt(8)).softmax(-1) @ v


def squared(m: Layer, x: Tensor) -> Any:
    return (m.q(x) @ m.k(x).mT).relu().square() @ m.v(x)


def own_key(m: Layer, x: Tensor, shared: Tensor, over: int = -1) -> Tensor:
    """The heads of each position meet one key head that stands where the positions should."""
    q = m.q(x).view(*x.shape[:2], 3, 4)
    context: Tensor = (q @ shared.mT / 2).softmax(over) @ shared
    return context


X, MAP = torch.randn(2, 5, 12), torch.randn(2, 3, 5, 12)


@pytest.mark.parametrize(
    ("forward", "args", "kind", "axes"),
    [
        (plain, (X,), "self", ((2,), (3,), (0, 1))),
        (key_first, (X,), "self", ((3,), (2,), (0, 1))),
        (talking, (X,), "self", ((2,), (3,), (0, 1))),
        (no_softmax, (X,), "self", ((2,), (3,), (0, 1))),
        (axial, (MAP,), "self", ((2,), (3,), (0, 1))),
        (cached, (X, torch.randn(2, 3, 12)), "self", ((1,), (2,), (0,))),
        (relative, (X,), "self", ((2,), (3,), (0, 1))),
        (squared, (X,), "self", ((1,), (2,), (0,))),
        (lambda m, x, y: (m.q(x) @ m.k(y).mT).softmax(-1) @ m.v(y),
         (X, torch.randn(2, 7, 12)), "cross", ((1,), (2,), (0,))),
        (lambda m, x: (m.q(x[:, :1]) @ m.k(x).mT).softmax(-1) @ m.v(x),
         (X,), "self", ((1,), (2,), (0,))),
        (lambda m, x: (m.q(x).mT @ m.k(x)).softmax(-1) @ m.v(x).mT,
         (X,), "channel", ((1,), (2,), (0,))),
        (lambda m, x: F.elu(m.q(x)) @ (F.elu(m.k(x)).mT @ m.v(x)),
         (X,), "linear", None),
        (lambda m, i: (m.q(m.table(i)) @ m.k(m.table(i)).mT).softmax(-1) @ m.v(m.table(i)),
         (torch.randint(0, 9, (2, 5)),), "self", ((1,), (2,), (0,))),
        (lambda m, x: (m.asks @ m.k(x).mT).softmax(-1) @ m.v(x), (X,), "pooling", None),
        (lambda m, x: (m.split(m.asks[None]) @ m.split(m.k(x)).mT).softmax(-1) @ m.split(m.v(x)),
         (X,), "pooling", ((2,), (3,), (0, 1))),
        (lambda m, x: (m.split(m.q(m.asks)[None]) @ m.split(m.k(x)).mT).softmax(-1) @ m.split(m.v(x)),
         (X,), "cross", ((2,), (3,), (0, 1))),
        (lambda m, x: (m.split(m.q(m.asks)[None]) @ m.split(m.k(x)).mT / 2) @ m.split(m.v(x)),
         (X,), "cross", ((2,), (3,), (0, 1))),
        (lambda m, x: m.one(x.tanh()).softmax(1).mT @ m.v(x), (X,), "pooling", None),
        (lambda m, x: m.one(torch.tanh(m.q(x)[:, :, None] + m.k(x)[:, None])).squeeze(-1).softmax(-1) @ m.v(x),
         (X,), "self", None),
        (lambda m, x: own_key(m, x, m.gate(x)[:, :, None]), (X,), "self", ((2,), (3,), (0, 1))),
        (lambda m, x: own_key(m, x, m.gate(x)[:, :, None].expand(-1, -1, 3, -1)),
         (X,), "self", ((2,), (3,), (0, 1))),
        (lambda m, x: (m.split(m.q(x[:, :1])) @ m.gate(x)[:, None].mT).softmax(-1) @ m.gate(x)[:, None],
         (X,), "self", ((2,), (3,), (0, 1))),
    ],
)  # fmt: skip
def test_what_is_a_site(
    forward: Callable[..., Any],
    args: tuple[Tensor, ...],
    kind: str,
    axes: tuple[tuple[int, ...], ...] | None,
    found: Find,
) -> None:
    sites = found(Layer(forward), *args).sites
    assert [s.kind.value for s in sites] == [kind]
    if axes is not None:
        (site,) = sites
        assert (site.row_axes, site.key_axes, site.group_axes) == axes


@pytest.mark.parametrize(
    ("forward", "args"),
    [
        (lambda m, x: m.o(x), (X,)),
        (lambda m, x: m.o((m.experts[0, :5] @ m.experts[1, :, :5]).softmax(-1) @ x) + m.v(x), (X,)),
        (lambda m, x: (m.q(x) @ m.k(m.asks).mT).softmax(-1) @ m.v(m.asks), (X,)),
        (lambda m, x: m.down(m.up(x).relu()), (X,)),
        (lambda m, x: m.down(m.up(x).softmax(-1)), (X,)),
        (lambda m, x: torch.einsum("bte,btec->btc", m.gate(x).softmax(-1),
                                   torch.einsum("btc,ecd->bted", x, m.experts)), (X,)),
        (lambda m, x: x * m.q(x).sigmoid() + m.o(x), (X,)),
        (lambda m, x: (x / x.norm(dim=-1, keepdim=True)).mean(1), (X,)),
        (lambda m, x: m.q(x).softmax(-1) @ m.table.weight.new_ones(12, 2), (X,)),
        (lambda m, x, keep: (m.o(x) * keep[..., None]).sum(1) / keep.sum(1, keepdim=True),
         (X, torch.tensor([[1.0, 1, 1, 0, 0], [1, 1, 1, 1, 0]]))),
        (lambda m, x: (m.q(x)[:, :, None] * m.k(x)[:, None]).sum(-1), (X,)),
        (lambda m, x: (m.q(x) @ m.k(x).mT).softmax(-1), (X,)),
        (lambda m, x: F.layer_norm(m.q(x), (12,)), (X,)),
        (lambda m, x: torch.einsum("bic,bjc->bij", x, x).sum(), (X,)),
        (lambda m, x: own_key(m, x, m.gate(x)[:, :, None], over=-2), (X,)),
        (lambda m, x, y: own_key(m, x, m.gate(y)), (X, torch.randn(2, 5, 1, 12))),
        (lambda m, x: own_key(m, x, m.gate(x)[:, :, None]), (X[:, :1],)),
        (lambda m, x: (m.q(x).view(2, 5, 3, 1, 4) @ m.gate(x)[:, :, None, :, None]).softmax(-1)
         @ m.gate(x)[:, :, None, None], (X,)),
        (lambda m, x: m.q(x).view(2, 5, 3, 4) @ m.gate(x)[..., None] @ m.gate(x)[:, :, None], (X,)),
    ],
)  # fmt: skip
def test_what_is_none(forward: Callable[..., Any], args: tuple[Tensor, ...], found: Find) -> None:
    assert found(Layer(forward), *args).sites == []


def test_the_parts_of_a_site(found: Find) -> None:
    bench = found(Layer(plain), X)
    (site,) = bench.sites
    assert site.score is not None and site.q is not None and site.k is not None
    assert [n.meta["op"] for n in (site.scores, site.normaliser.logits, site.weights, site.context)] == [
        "matmul", "div", "softmax", "matmul",
    ]  # fmt: skip
    assert (site.key_left, site.weights_left) == (False, True)
    assert site.q.source is not None and site.q.source.parameters == ("q.weight",)
    assert site.k.source is not None and site.k.source.parameters == ("k.weight",)
    assert site.v.source is not None and site.v.source.parameters == ("v.weight",)
    assert (site.members, site.all, site.extra) == ((), (site,), ())
    for axis, index in enumerate(site.origin):
        expected = torch.arange(index.shape[axis]).view([-1 if a == axis else 1 for a in range(4)])
        assert torch.equal(index, expected.expand_as(index))


def test_the_key_side_is_told_by_what_meets_the_values(found: Find) -> None:
    (site,) = found(Layer(key_first), X).sites
    assert site.key_left is True
    assert site.q is not None and site.q.source is not None
    assert site.q.source.parameters == ("q.weight",)

    def swapped(m: Layer, x: Tensor) -> Tensor:
        # Whatever the maps are called, the axis that is summed with V belongs to the keys.
        q, k, v = heads(m, x)
        return (q @ k.mT / 2).softmax(-2).mT @ v

    (site,) = found(Layer(swapped), X).sites
    assert site.key_left is True
    assert site.q is not None and site.q.source is not None
    assert site.q.source.parameters == ("k.weight",)


def test_further_terms_of_the_scores(found: Find) -> None:
    (site,) = found(Layer(relative), X).sites
    assert len(site.extra) == 1
    assert site.extra[0].meta["op"] == "einsum"
    (plain_site,) = found(Layer(plain), X).sites
    assert plain_site.extra == ()


def test_heads_of_a_loop_are_one_site(found: Find) -> None:
    def looped(m: Layer, x: Tensor) -> Any:
        out = []
        for i in range(3):
            q, k, v = (w(x)[..., 4 * i : 4 * i + 4] for w in (m.q, m.k, m.v))
            out.append((q @ k.mT / 2).softmax(-1) @ v)
        return m.o(torch.cat(out, -1))

    (site,) = found(Layer(looped), X).sites
    assert len(site.members) == 3
    assert site.members[0].context is site.context
    assert len({m.context for m in site.all}) == 3


def test_layers_on_top_of_each_other_are_several_sites(found: Find) -> None:
    def twice(m: Layer, x: Tensor) -> Tensor:
        for _ in range(2):
            x = x + (m.q(x) @ m.k(x).mT).softmax(-1) @ m.v(x)
        return x

    bench = found(Layer(twice), X)
    one, two = bench.sites
    assert one.members == two.members == ()
    assert one.context in bench.dependence.ancestors([two.context])
    assert two.context not in bench.dependence.ancestors([one.context])


def test_two_value_products_of_one_score_matrix(found: Find) -> None:
    def both(m: Layer, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        scores = m.q(x) @ m.k(y).mT
        return scores.softmax(-1) @ m.v(y), scores.mT.softmax(-1) @ m.o(x)

    one, two = found(Layer(both), X, torch.randn(2, 7, 12)).sites
    assert one.scores is two.scores
    assert (one.key_axes, two.key_axes) == ((2,), (1,))
    assert (one.key_left, two.key_left) == (False, True)


def test_a_sum_that_normalises_is_no_site_of_its_own(found: Find) -> None:
    def by_hand(m: Layer, x: Tensor) -> Any:
        e = (m.q(x) @ m.k(x).mT).exp()
        return (e @ m.v(x)) / (e @ torch.ones_like(x[..., :1]))

    sites = found(Layer(by_hand), X).sites
    assert len(sites) == 1
    assert sites[0].v.source is not None and sites[0].v.source.parameters == ("v.weight",)


def test_computed_and_dropped_attention_is_no_site(found: Find) -> None:
    def dropped(m: Layer, x: Tensor) -> Any:
        plain(m, x)
        return m.o(x)

    assert found(Layer(dropped), X).sites == []


def test_masked_scores_are_traced_through_the_mask(found: Find) -> None:
    def causal(m: Layer, x: Tensor) -> Tensor:
        q, k, v = heads(m, x)
        s = (q @ k.mT / 2).masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf"))
        return s.softmax(-1) @ v

    bench = found(Layer(causal), X)
    (site,) = bench.sites
    index = bench.finder.unmasked_index(site)
    for axis in range(4):
        expected = torch.arange(index[axis].shape[axis]).view(
            [-1 if a == axis else 1 for a in range(4)]
        )
        assert torch.equal(index[axis], expected.expand_as(index[axis]))
