"""Which key/value head each query head meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.groups import measure_groups
from mha_lint.model.facts import Known
from mha_lint.model.position_facts import HeadGroups

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

GROUPED = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads, kv_heads):
        super().__init__()
        self.h, self.g, self.d_k = num_heads, kv_heads, d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, kv_heads * self.d_k)
        self.v_proj = nn.Linear(d_model, kv_heads * self.d_k)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        n = self.h // self.g
        q = self.q_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.g, self.d_k).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.g, self.d_k).transpose(1, 2)
        k = k.repeat_interleave(n, dim=1)
        v = v.repeat_interleave(n, dim=1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)
        context = scores.softmax(-1) @ v
        return self.out_proj(context.transpose(1, 2).reshape(B, T, C))
"""
"""B 2, T 5, h 6, 2 key/value heads, d_k 4, d_model 24."""

KEYS = "        k = k.repeat_interleave(n, dim=1)\n"
VALUES = "        v = v.repeat_interleave(n, dim=1)\n"
BLOCKS = (0, 0, 0, 1, 1, 1)
TILES = (0, 1, 0, 1, 0, 1)

Grouped = Callable[..., "Case"]


@pytest.fixture
def grouped(measured: Measure) -> Grouped:
    def run(*edits: tuple[str, str], text: str = GROUPED, build: str = "MHA(24, 6, 2)") -> Case:
        return measured(*edits, text=text, build=build)

    return run


def groups_of(case: Case) -> HeadGroups:
    fact = measure_groups(case.bench, case.bench.sites[0])
    assert isinstance(fact, Known), fact
    return fact.value


def test_blocks(grouped: Grouped) -> None:
    case = grouped()
    fact = measure_groups(case.bench, case.bench.sites[0])
    assert isinstance(fact, Known)
    found = fact.value
    assert (found.num_heads, found.num_kv_heads) == (6, 2)
    assert (found.keys, found.values, found.order) == (BLOCKS, BLOCKS, "blocked")
    assert case.marked(found.span) == "k.repeat_interleave(n, dim=1)"
    assert case.marked(found.value_span) == "v.repeat_interleave(n, dim=1)"
    assert found.repeat is None
    assert fact.evidence == "query heads 0 to 5 meet the key heads 0, 0, 0, 1, 1, 1"


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        ("k[:, :, None].expand(-1, -1, n, -1, -1).reshape(B, self.h, T, self.d_k)", "blocked"),
        ("k[:, torch.arange(self.h) // n]", "blocked"),
        ("k.repeat(1, n, 1, 1)", "tiled"),
        ("k[:, None].expand(-1, n, -1, -1, -1).reshape(B, self.h, T, self.d_k)", "tiled"),
        ("torch.cat([k] * n, 1)", "tiled"),
        ("k[:, torch.arange(self.h) % 2]", "tiled"),
        ("k[:, [0, 1, 1, 0, 1, 0]]", "other"),
    ],
)
def test_spellings(grouped: Grouped, keys: str, order: str) -> None:
    values = keys.replace("k.", "v.").replace("k[", "v[").replace("[k]", "[v]")
    case = grouped((KEYS, f"        k = {keys}\n"), (VALUES, f"        v = {values}\n"))
    found = groups_of(case)
    assert (found.order, found.keys) == (order, found.values)


def test_keys_and_values_apart(grouped: Grouped) -> None:
    found = groups_of(grouped((VALUES, "        v = v.repeat(1, n, 1, 1)\n")))
    assert (found.keys, found.values) == (BLOCKS, TILES)


def test_rotated_and_normed_heads_are_told_apart(grouped: Grouped) -> None:
    norm = "        k = F.rms_norm(k, (self.d_k,))\n"
    turn = (
        "        a = torch.arange(T)[:, None] * torch.tensor([1.0, 0.1])\n"
        "        k = torch.cat((k[..., :2] * a.cos() - k[..., 2:] * a.sin(),"
        " k[..., 2:] * a.cos() + k[..., :2] * a.sin()), -1)\n"
    )
    for extra in (norm, turn, norm + turn):
        case = grouped((KEYS, extra + "        k = k.repeat(1, n, 1, 1)\n"))
        assert groups_of(case).keys == TILES


def test_a_norm_over_all_heads(grouped: Grouped) -> None:
    case = grouped(
        ("q = self.q_proj(x)", "q = F.layer_norm(self.q_proj(x), (C,))"),
        ("k = self.k_proj(x)", "k = F.layer_norm(self.k_proj(x), (8,))"),
    )
    assert groups_of(case).keys == BLOCKS


EINSUM = (
    ("q = self.q_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)",
     "q = self.q_proj(x).view(B, T, {}, self.d_k)"),
    ("k = self.k_proj(x).view(B, T, self.g, self.d_k).transpose(1, 2)",
     "k = self.k_proj(x).view(B, T, self.g, self.d_k)"),
    ("v = self.v_proj(x).view(B, T, self.g, self.d_k).transpose(1, 2)",
     "v = self.v_proj(x).view(B, T, self.g, self.d_k)"),
    (KEYS, ""),
    (VALUES, ""),
    ("q @ k.transpose(-2, -1)", "torch.einsum('{},bjgd->bgnij', q, k)"),
    ("scores.softmax(-1) @ v", "torch.einsum('bgnij,bjgd->{}', scores.softmax(-1), v)"),
    ("context.transpose(1, 2).reshape", "context.reshape"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("axes", "labels", "numbers"),
    [("self.g, n", "bignd", BLOCKS), ("n, self.g", "bingd", TILES)],
)
def test_einsum(grouped: Grouped, axes: str, labels: str, numbers: tuple[int, ...]) -> None:
    edits = [
        (old, new.format(axes) if "view" in new else new.format(labels)) for old, new in EINSUM
    ]
    case = grouped(*edits)
    found = groups_of(case)
    assert found.keys == found.values == numbers
    assert case.marked(found.span) == f"self.q_proj(x).view(B, T, {axes}, self.d_k)"


def test_sdpa(grouped: Grouped) -> None:
    case = grouped(
        (KEYS, ""), (VALUES, ""),
        ("        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_k)\n", ""),
        ("scores.softmax(-1) @ v", "F.scaled_dot_product_attention(q, k, v, enable_gqa=True)"),
    )  # fmt: skip
    assert groups_of(case).order == "blocked"


def test_one_head_for_all_and_one_each(grouped: Grouped, measured: Measure) -> None:
    assert groups_of(grouped(build="MHA(24, 6, 1)")).order == "single"
    found = groups_of(measured())
    assert (found.order, found.keys) == ("each", (0, 1, 2, 3))


LOOP = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads, kv_heads):
        super().__init__()
        self.h, self.g, self.d_k = num_heads, kv_heads, d_model // num_heads
        self.qs = nn.ModuleList(nn.Linear(d_model, self.d_k) for _ in range(num_heads))
        self.ks = nn.ModuleList(nn.Linear(d_model, self.d_k) for _ in range(kv_heads))
        self.vs = nn.ModuleList(nn.Linear(d_model, self.d_k) for _ in range(kv_heads))
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        found = []
        for i in range(self.h):
            j = i // (self.h // self.g)
            scores = self.qs[i](x) @ self.ks[j](x).transpose(1, 2) / math.sqrt(self.d_k)
            found.append(scores.softmax(-1) @ self.vs[j](x))
        return self.out_proj(torch.cat(found, -1))
"""


def test_a_loop(grouped: Grouped) -> None:
    assert groups_of(grouped(text=LOOP)).keys == BLOCKS
    case = grouped(("i // (self.h // self.g)", "i % self.g"), text=LOOP)
    found = groups_of(case)
    assert (found.keys, found.values) == (TILES, TILES)
    assert case.marked(found.span) == "self.qs[i](x) @ self.ks[j](x).transpose(1, 2)"


def test_without_products(measured: Measure, why: Callable[[Any], tuple[str, str]]) -> None:
    text = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))
        self.one = nn.Linear(d_model, 1)

    def forward(self, x):
        scores = self.one(torch.tanh(self.q(x)[:, :, None] + self.k(x)[:, None])).squeeze(-1)
        return scores.softmax(-1) @ self.v(x)
"""
    bench = measured(text=text).bench
    assert why(measure_groups(bench, bench.sites[0])) == (
        "NotApplicable", "the scores are no product of queries and keys"
    )  # fmt: skip
