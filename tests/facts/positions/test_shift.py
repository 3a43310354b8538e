"""Products beside q.k that are shifted into place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.masks.levels import levels_of
from mha_lint.facts.positions.bias import measure_bias
from mha_lint.facts.positions.shift import further_products, handed_over, wrong_shift
from mha_lint.model.facts import Known, Unknown

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


GIVEN = """
class Given(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.h = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.place = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x, far):
        B, T, C = x.shape
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        near = q @ k.mT
        far = q @ self.place(far).unflatten(-1, (self.h, -1)).transpose(0, 1).mT
        far = F.pad(far, (1, 0)).view(B, self.h, -1, T)[:, :, 1:].reshape(far.shape)
        scores = (near + far[..., :T]) / math.sqrt(q.size(-1))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


def test_a_number_of_positions_that_was_guessed(measured: Measure) -> None:
    few, all_ = (f"torch.randn(2, 5, 24), torch.randn({n}, 24)" for n in (5, 9))
    case = measured(text=GIVEN, build="Given(24, 4)", call=few)
    assert shift_of(case) is not None
    assert handed_over(case.bench, case.bench.sites)
    guessed = measure_bias(case.bench, case.bench.sites[0], guessed=True)
    why = "how many relative positions the argument holds was guessed: pass --call"
    assert guessed == Unknown(why)
    right = measured(text=GIVEN, build="Given(24, 4)", call=all_)
    assert shift_of(right) is None


def test_a_number_of_positions_of_its_own_is_not_guessed(measured: Measure) -> None:
    case = measured(TABLE, (SCORES, XL))
    assert not handed_over(case.bench, case.bench.sites)
    fact = measure_bias(case.bench, case.bench.sites[0], guessed=True)
    assert isinstance(fact, Known) and fact.value.shift == shift_of(case)
