"""Which sample and position of the inputs the rows of queries and keys hold."""

from __future__ import annotations

import torch

from mha_lint.facts.masks.held import in_order, rows_of
from tests.facts.conftest import Measure
from tests.facts.masks.masked import CROSS, CROSS_CALL, MASKED, MASKED_CALL


def test_rows_of_one_layer(measured: Measure) -> None:
    case = measured(text=MASKED, call=MASKED_CALL)
    rows = rows_of(case.bench, case.bench.sites[0])
    (queries,), (keys,) = rows.queries, rows.keys
    for held in (queries, keys):
        assert (held.entry.argument, held.batch, held.along) == ("x", 0, (1,))
        assert held.samples[:, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
        assert torch.equal(held.positions, torch.arange(5).expand(8, 5))
    assert rows.own(queries=True) == rows.own(queries=False) == keys.entry
    assert in_order(rows)


def test_learned_keys_hold_nothing(measured: Measure) -> None:
    case = measured(
        ("        scores = q @ k", "        k = torch.cat([self.extra.expand(B, -1, -1, -1), k], 2)\n"
         "        v = torch.cat([self.extra.expand(B, -1, -1, -1), v], 2)\n        scores = q @ k"),
        ("        self.out =", "        self.extra = nn.Parameter(torch.randn(1, 4, 2, 6))\n        self.out ="),
        ("hidden = mask", "hidden = F.pad(mask, (2, 0), value=1)"),
        text=MASKED,
        call=MASKED_CALL,
    )  # fmt: skip
    (keys,) = rows_of(case.bench, case.bench.sites[0]).keys
    assert keys.positions[0].tolist() == [-1, -1, 0, 1, 2, 3, 4]
    assert keys.moves[0].tolist() == [False, False, True, True, True, True, True]


def test_what_earlier_attention_mixes_is_no_own_position(measured: Measure) -> None:
    case = measured(text=CROSS, build="Decoder(24, 4)", call=CROSS_CALL)
    inner, outer = (rows_of(case.bench, s) for s in case.bench.sites)
    assert inner.own(queries=True) == inner.own(queries=False)
    asks, answers = outer.own(queries=True), outer.own(queries=False)
    assert asks is not None and answers is not None
    assert (asks.argument, answers.argument) == ("tgt", "memory")
    held = next(h for h in outer.queries if h.entry == asks)
    assert held.positions[0].tolist() == [0, 1, 2, 3, 4]


def test_a_flipped_sequence_is_not_in_order(measured: Measure) -> None:
    case = measured(
        ("        B, T, C = x.shape", "        x = x.flip(1)\n        B, T, C = x.shape"),
        text=MASKED,
        call=MASKED_CALL,
    )
    rows = rows_of(case.bench, case.bench.sites[0])
    assert rows.keys[0].positions[0].tolist() == [4, 3, 2, 1, 0]
    assert not in_order(rows)


def test_rows_made_from_several_positions_hold_none_of_them(measured: Measure) -> None:
    case = measured(
        ("        q, k, v =", "        x = self.mix(x.transpose(1, 2)).transpose(1, 2)\n        q, k, v ="),
        ("        self.out =", "        self.mix = nn.Conv1d(24, 24, 3, padding=1)\n        self.out ="),
        text=MASKED,
        call=MASKED_CALL,
    )  # fmt: skip
    (keys,) = rows_of(case.bench, case.bench.sites[0]).keys
    assert bool((keys.positions == -1).all())
    assert keys.samples[:, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_keys_that_an_argument_without_positions_feeds(measured: Measure) -> None:
    case = measured(
        ("forward(self, x, mask)", "forward(self, x, mask, patches)"),
        ("        q, k, v =", "        x = x.masked_scatter((mask == 2)[..., None].expand_as(x), patches)\n"
         "        q, k, v ="),
        text=MASKED,
        call="torch.randn(2, 5, 24), torch.tensor([[2, 2, 1, 1, 1], [2, 1, 1, 0, 0]]), torch.randn(3, 24)",
    )  # fmt: skip
    rows = rows_of(case.bench, case.bench.sites[0])
    (keys,) = rows.keys
    assert keys.positions[0].tolist() == [-1, -1, 2, 3, 4]
    assert rows.fed is not None
    assert rows.fed[0].tolist() == [True, True, False, False, False]
    assert rows.fed[4].tolist() == [True, False, False, False, False]


def test_where_all_arguments_have_positions_nothing_else_feeds(measured: Measure) -> None:
    case = measured(text=MASKED, call=MASKED_CALL)
    assert rows_of(case.bench, case.bench.sites[0]).fed is None
