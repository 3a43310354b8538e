"""Ways from positions of inputs to rows of outputs, and what mixes positions on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.causal.mixing import into, joins, sources, ways
from mha_lint.facts.places import span_of
from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

SHAPE = "        B, T, C = x.shape\n"
RETURN = "        return self.out_proj(merged)\n"


def joined(case: Case, rows: int = 5) -> tuple[str, int] | None:
    sites = [m for s in case.bench.sites for m in s.all]
    found = joins(case.bench, sites, rows)
    if found is None:
        return None
    span = span_of(found.node)
    assert span is not None
    return found.reaches, span.line


def test_a_plain_way(measured: Measure) -> None:
    bench = measured().bench
    (way,) = ways(bench, bench.sites, 5)
    assert (way.entry.argument, way.entry.axis, way.axis, way.own) == ("x", 1, 1, 0)
    assert [(e.argument, own) for e, own in into(bench, bench.sites, 5)] == [("x", 0)]
    assert [(e.argument, e.axis) for e in sources(bench, bench.sites, 5)] == [("x", 1), ("", 2)]


def test_tokens_in_front_shift_the_rows(measured: Measure) -> None:
    front = (
        "        self.h = num_heads\n",
        "        self.h = num_heads\n        self.start = nn.Parameter(torch.randn(1, 2, d_model))\n",
    )
    join = (SHAPE, f"        x = torch.cat([self.start.expand(x.size(0), -1, -1), x], 1)\n{SHAPE}")
    bench = measured(front, join).bench
    (way,) = ways(bench, bench.sites, 7)
    assert (way.entry.argument, way.own) == ("x", 2)
    bench = measured(front, join, (RETURN, "        return self.out_proj(merged)[:, 2:]\n")).bench
    (way,) = ways(bench, bench.sites, 7)
    assert way.own == 0


def test_a_pooled_output_is_no_way(measured: Measure) -> None:
    bench = measured((RETURN, "        return self.out_proj(merged).mean(1)\n")).bench
    assert ways(bench, bench.sites, 5) == []


@pytest.mark.parametrize(
    ("front", "reaches"),
    [
        ("x = x + x.mean(1, keepdim=True)", "queries"),
        ("x = F.instance_norm(x.mT).mT", "queries"),
        ("x = x + x.flip(1).cumsum(1).flip(1)", "queries"),
        ("x = torch.cat([x[..., :12], x[:, -1:, 12:].expand(-1, x.size(1), -1)], -1)", "queries"),
    ],
)
def test_what_joins_in_front(measured: Measure, front: str, reaches: str) -> None:
    case = measured((SHAPE, f"        {front}\n{SHAPE}"))
    assert joined(case) == (reaches, case.line(front))


def test_the_summary_is_found_where_it_joins(measured: Measure) -> None:
    lines = (
        "        mean = k.mean(2, keepdim=True)\n"
        "        mean = mean.expand(-1, -1, T, -1)\n"
        "        k = k + mean\n"
        "        scores = q @ k.transpose(-2, -1)\n"
    )
    case = measured(("        scores = q @ k.transpose(-2, -1)\n", lines))
    assert joined(case) == ("keys", case.line("k = k + mean"))


def test_a_recurrence_from_behind(measured: Measure) -> None:
    layer = (
        "        self.h = num_heads\n",
        "        self.h = num_heads\n        self.rnn = nn.GRU(d_model, d_model // 2, bidirectional=True, batch_first=True)\n",
    )
    case = measured(layer, (SHAPE, f"        x, _ = self.rnn(x)\n{SHAPE}"))
    assert joined(case) == ("queries", case.line("self.rnn(x)"))


@pytest.mark.parametrize(
    "front",
    ["x = x.flip(1)", "x = x.cumsum(1)", "x = F.pad(x[:, :-1], (0, 0, 1, 0))", "x = x.softmax(-1)"],
)
def test_what_mixes_nothing_from_behind(measured: Measure, front: str) -> None:
    assert joined(measured((SHAPE, f"        {front}\n{SHAPE}"))) is None


def test_attention_itself_is_no_mixing(measured: Measure) -> None:
    two = (
        PLAIN
        + """

class Two(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.a, self.b = MHA(d_model, num_heads), MHA(d_model, num_heads)

    def forward(self, x):
        x = x + self.a(x)
        return x + self.b(x)
"""
    )
    assert joined(measured(text=two, build="Two(24, 4)")) is None


@pytest.mark.parametrize(
    "behind",
    ["merged = merged * x.amax(1, keepdim=True)", "merged = merged + x + x.mean(1, keepdim=True)"],
)
def test_what_joins_behind(measured: Measure, behind: str) -> None:
    case = measured((RETURN, f"        {behind}\n{RETURN}"))
    assert joined(case) == ("output", case.line(behind))


def test_a_residual_joins_nothing(measured: Measure) -> None:
    assert joined(measured((RETURN, "        return x + self.out_proj(merged)\n"))) is None
