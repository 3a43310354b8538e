"""Products beside q.k that are shifted into place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.positions.shift import further_products, wrong_shift

if TYPE_CHECKING:
    from mha_lint.model.position_facts import WrongShift
    from tests.facts.conftest import Case, Measure

TABLE = (
    "        self.out_proj = nn.Linear(d_model, d_model)\n",
    "        self.out_proj = nn.Linear(d_model, d_model)\n"
    "        self.far = nn.Parameter(torch.randn(31, self.d_k))\n",
)
SCORES = "        scores = q @ k.transpose(-2, -1)\n"
XL = """\
        far = q @ self.far[:T].T
        far = F.pad(far, (1, 0)).view(B, self.h, T + 1, T)[:, :, 1:]
        far = far.reshape(B, self.h, T, T)
        scores = q @ k.transpose(-2, -1) + far
"""
CAUSAL = "        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)\n"
BOTH_WAYS = """\
        far = q @ self.far[16 - T:15 + T].T
        far = F.pad(far, (0, 1)).flatten(2)[..., T - 1:-1].unflatten(-1, (T, -1))[..., :T]
        scores = q @ k.transpose(-2, -1) + far
"""
GATHERED = """\
        place = torch.arange(T)
        step = (place[:, None] - place + 15).expand(B, self.h, T, T)
        ask = (q @ self.far.T).gather(-1, step)
        told = (k @ self.far.T).gather(-1, step).transpose(-2, -1)
        scores = q @ k.transpose(-2, -1) + ask + told
"""
OF_KEY_ALONE = """\
        scores = q @ k.transpose(-2, -1) + (k @ self.far[0])[:, :, None]
"""


def shift_of(case: Case) -> WrongShift | None:
    site = case.bench.sites[0]
    return wrong_shift(case.bench, site, ~levels_of(case.bench, site).hidden)


def test_rows_of_the_next_query(measured: Measure) -> None:
    case = measured(TABLE, (SCORES, XL))
    found = shift_of(case)
    assert found is not None
    assert (found.query, found.key, found.row) == (0, 2, 1)
    # Behind the place after the query: 3 + 2 + 1 of 25.
    assert (found.count, found.visible) == (6, 25)
    assert case.marked(found.span) == "F.pad(far, (1, 0)).view(B, self.h, T + 1, T)[:, :, 1:]"


def test_a_causal_mask_hides_them(measured: Measure) -> None:
    assert shift_of(measured(TABLE, (SCORES, XL + CAUSAL))) is None


@pytest.mark.parametrize("scores", [BOTH_WAYS, GATHERED, OF_KEY_ALONE])
def test_right_shifts(measured: Measure, scores: str) -> None:
    case = measured(TABLE, (SCORES, scores))
    assert further_products(case.bench, case.bench.sites[0])
    assert shift_of(case) is None


def test_a_map_over_heads_is_no_further_product(measured: Measure) -> None:
    mixed = SCORES + "        scores = torch.einsum('bhij,hg->bgij', scores, self.far[:4, :4])\n"
    case = measured(TABLE, (SCORES, mixed))
    assert further_products(case.bench, case.bench.sites[0]) == []


def test_zeros_behind_the_products(measured: Measure) -> None:
    behind = XL.replace("F.pad(far, (1, 0))", "F.pad(far, (0, 1))")
    case = measured(TABLE, (SCORES, behind + CAUSAL))
    site = case.bench.sites[0]
    found = wrong_shift(case.bench, site, ~levels_of(case.bench, site).hidden)
    assert found is not None
    assert (found.query, found.key, found.row) == (0, 0, -1)
    assert case.marked(found.span) == "F.pad(far, (0, 1))"


def test_far_keys_without_a_product(measured: Measure) -> None:
    near = XL.replace("q @ self.far[:T].T", "F.pad(q @ self.far[:3].T, (T - 3, 0))")
    case = measured(TABLE, (SCORES, near + CAUSAL))
    site = case.bench.sites[0]
    assert wrong_shift(case.bench, site, ~levels_of(case.bench, site).hidden) is None
