"""Which positions enter where, and what they move; what is held passes nothing on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mha_lint.facts.influence import Entry, changed, entries, reached
from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

MASK = (
    "        weights = scores.softmax(dim=-1)\n",
    "        later = torch.ones(T, T).triu(1).bool()\n"
    '        weights = scores.masked_fill(later, float("-inf")).softmax(dim=-1)\n',
)
IDS = (
    PLAIN
    + """

class LM(nn.Module):
    def __init__(self, size, d_model, num_heads):
        super().__init__()
        self.embed = nn.Embedding(size, d_model)
        self.attention = MHA(d_model, num_heads)

    def forward(self, ids):
        ids = {shift}
        return self.attention(self.embed(ids){mean})
"""
)


def of_ids(measured: Measure, *, shift: str = "ids", mean: str = "") -> Case:
    return measured(
        text=IDS.format(shift=shift, mean=mean),
        build="LM(30, 24, 4)",
        call="torch.randint(0, 30, (2, 5))",
    )


def found(case: Case) -> list[tuple[str, str, int | None]]:
    return [(e.argument, e.node.name.partition("_")[0], e.axis) for e in entries(case.bench)]


def test_states_and_looked_up_ids(measured: Measure) -> None:
    assert found(measured()) == [("x", "x", 1)]
    assert found(of_ids(measured)) == [("ids", "embedding", 1)]


def test_ids_that_are_shifted_first(measured: Measure) -> None:
    case = of_ids(measured, shift="torch.cat([ids[:, :1] * 0, ids[:, :-1]], dim=1)")
    assert found(case) == [("ids", "embedding", 1)]


def test_positions_that_reach_every_row_have_their_own(measured: Measure) -> None:
    mean = " + self.embed(ids).mean(1, keepdim=True)"
    case = of_ids(measured, mean=mean)
    assert ("ids", "embedding", 1) in found(case)


def test_channels_before_positions(measured: Measure) -> None:
    case = measured(
        ("def forward(self, x):", "def forward(self, y):\n        x = y.transpose(1, 2)"),
        call="torch.randn(2, 24, 5)",
    )
    assert found(case) == [("y", "y", 2)]


def test_a_causal_mask_lets_no_position_back(measured: Measure) -> None:
    bench = measured(MASK).bench
    (entry,) = entries(bench)
    positions, (hit,) = reached(bench, entry, bench.recording.outputs)
    assert positions == [0, 1, 2, 3, 4]
    rows = hit.any(-1)[:, 0]
    assert rows.tolist() == torch.ones(5, 5).triu().bool().tolist()


def test_what_is_held_passes_nothing_on(measured: Measure) -> None:
    bench = measured().bench
    (entry,) = entries(bench)
    (site,) = bench.sites
    _, (free,) = changed(bench, entry, bench.recording.outputs, [2])
    _, (held,) = changed(bench, entry, bench.recording.outputs, [2], hold=[site.context])
    assert bool((free > 0).all())
    assert not bool(held.any())


def test_a_number_that_gets_lost_is_an_infinite_change(measured: Measure) -> None:
    bench = measured(
        ("return self.out_proj(merged)", "return (x - 100).relu().log().cumsum(1)")
    ).bench
    x = bench.recording.placeholders[0]
    _, (change,) = changed(bench, Entry(x, "x", 1), [bench.recording.outputs[0]], [1])
    assert set(change.flatten().tolist()) <= {0.0, float("inf")}
