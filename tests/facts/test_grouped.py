"""Which sample, head and positions the score matrices of a site belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.grouped import Grouped, grouped
from tests.facts.conftest import PLAIN
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure


def groups(case: Case) -> Grouped:
    return grouped(case.bench, case.bench.sites[0].all[0])


@pytest.mark.parametrize("name", ["einsum", "bmm", "fused", "sdpa"])
def test_samples_and_heads(name: str, measured: Measure) -> None:
    found = groups(measured(text=SPELLINGS[name].text))
    assert found.samples.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found.heads.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert found.queries.tolist() == [[0, 1, 2, 3, 4]] * 8
    assert found.keys.tolist() == [[0, 1, 2, 3, 4]] * 8


def test_heads_folded_ahead_of_the_samples(measured: Measure) -> None:
    text = PLAIN.replace(
        "        scores = q @ k.transpose(-2, -1)\n",
        "        q, k, v = (z.transpose(0, 1).reshape(self.h * B, T, self.d_k) for z in (q, k, v))\n"
        "        scores = q @ k.transpose(-2, -1)\n",
    ).replace(
        "context = weights @ v",
        "context = (weights @ v).view(self.h, B, T, self.d_k).transpose(0, 1)",
    )
    found = groups(measured(text=text))
    assert found.samples.tolist() == [0, 1] * 4
    assert found.heads.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_windows_hold_the_positions_of_their_source(measured: Measure) -> None:
    text = PLAIN.replace(
        "        B, T, C = x.shape\n",
        "        N, W, C = x.shape\n        x = x.reshape(N * 2, W // 2, C)\n        B, T, C = x.shape\n",
    ).replace("return self.out_proj(merged)", "return self.out_proj(merged).view(N, W, C)")
    found = groups(measured(text=text, call="torch.randn(2, 6, 24)"))
    assert found.queries.shape == (16, 3)
    assert len(set(found.samples.tolist())) == 4


def test_learned_keys_have_no_position(measured: Measure) -> None:
    text = PLAIN.replace(
        "        scores = q @",
        "        k = torch.cat((self.sink.expand(B, -1, -1, -1), k), 2)\n"
        "        v = torch.cat((self.sink.expand(B, -1, -1, -1), v), 2)\n"
        "        scores = q @",
    ).replace(
        "        self.out_proj =",
        "        self.sink = nn.Parameter(torch.randn(1, 4, 1, 6))\n        self.out_proj =",
    )
    found = groups(measured(text=text))
    assert found.keys.tolist() == [[-1, 0, 1, 2, 3, 4]] * 8
    assert found.queries.tolist() == [[0, 1, 2, 3, 4]] * 8


def test_cross_attention_numbers_each_source(measured: Measure) -> None:
    spelled = SPELLINGS["cross"]
    found = groups(
        measured(
            text=spelled.text,
            build="CrossAttention(24, 24, 4)",
            call="torch.randn(2, 5, 24), torch.randn(2, 7, 24)",
        )
    )
    assert found.queries.tolist() == [[0, 1, 2, 3, 4]] * 8
    assert found.keys.tolist() == [[0, 1, 2, 3, 4, 5, 6]] * 8
