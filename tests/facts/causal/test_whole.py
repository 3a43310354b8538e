"""What reaches what through a whole subject whose sites have no square of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from mha_lint.facts.causal.whole import Reach, reaches, wrapped
from mha_lint.facts.influence import Entry
from mha_lint.model.facts import Kind, Known

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

BLOCKS = """\
class Blocks(nn.Module):
    def __init__(self, width, heads, size):
        super().__init__()
        self.heads, self.size = heads, size
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        n, w = t // self.size, self.size
        q, k, v = self.qkv(x).view(b, n, w, 3, self.heads, -1).permute(3, 0, 4, 1, 2, 5)
        k = torch.cat([k.roll(1, 2), k], 3)
        v = torch.cat([v.roll(1, 2), v], 3)
        scores = q @ k.mT / q.size(-1) ** 0.5
        keep = torch.ones(w, 2 * w).tril(w).bool()
        hidden = ~keep.expand(n, w, 2 * w)
        scores = scores.masked_fill(hidden, float("-inf"))
        y = scores.softmax(-1) @ v
        return self.out(y.permute(0, 2, 3, 1, 4).reshape(b, t, c))
"""
SUMS = """\
class CausalSums(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = (k.unsqueeze(-1) * v.unsqueeze(-2)).cumsum(2)
        total = k.cumsum(2)
        y = torch.einsum("bhtd,bhtdm->bhtm", q, state) / (q * total).sum(-1, keepdim=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))
"""
LATER = ("total = k.cumsum(2)", "total = k.sum(2, keepdim=True)")


def blocks(measured: Measure, *edits: tuple[str, str]) -> Case:
    return measured(*edits, text=BLOCKS, build="Blocks(24, 3, 4)", call="torch.randn(2, 16, 24)")


def sums(measured: Measure, *edits: tuple[str, str]) -> Case:
    return measured(*edits, text=SUMS, build="CausalSums(24, 3)", call="torch.randn(2, 7, 24)")


def faults(case: Case) -> list[Any]:
    fact = case.facts.causality
    return list(fact.value.faults) if isinstance(fact, Known) else []


def test_the_end_reaches_round_to_the_start(measured: Measure) -> None:
    case = blocks(measured)
    (fault,) = faults(case)
    assert fault.kind == "wrapped"
    assert case.marked(fault.span) == "k.roll(1, 2)"
    assert fault.leak.later >= 12
    assert fault.leak.earlier < 4


def test_what_wraps_around_is_hidden(measured: Measure) -> None:
    edit = (
        "hidden = ~keep.expand(n, w, 2 * w)",
        "hidden = ~keep.expand(n, w, 2 * w) | ((torch.arange(n)[:, None, None] == 0)"
        " & (torch.arange(2 * w) < w))",
    )
    assert faults(blocks(measured, edit)) == []


def test_positions_on_a_circle_have_no_future(measured: Measure) -> None:
    assert faults(blocks(measured, (".tril(w)", ""))) == []


def test_a_sum_over_all_keys(measured: Measure) -> None:
    case = sums(measured, LATER)
    (site,) = case.bench.sites
    assert site.kind is Kind.LINEAR
    (fault,) = faults(case)
    assert (fault.kind, fault.meant) == ("other", "class name CausalSums")
    assert case.marked(fault.span).startswith("k.sum(2")


def test_running_sums_are_causal(measured: Measure) -> None:
    assert faults(sums(measured)) == []


def test_without_a_word_of_it_nothing_need_be_causal(measured: Measure) -> None:
    case = measured(
        LATER, ("class CausalSums", "class Sums"), text=SUMS, build="Sums(24, 3)",
        call="torch.randn(2, 7, 24)",
    )  # fmt: skip
    assert faults(case) == []


def test_each_position_reaches_its_own_row(measured: Measure) -> None:
    (reach,) = reaches(sums(measured).bench)
    assert bool((reach.change.diagonal() > 0).all())
    assert not bool(reach.future.any())
    assert reach.leak(reach.future) is None


@pytest.mark.parametrize(
    ("later", "found"),
    [
        ([(6, 0), (7, 0)], (7, 0)),
        ([(1, 0), (2, 0)], None),
        ([(7, r) for r in range(7)], None),
        ([], None),
    ],
)
def test_a_gap_tells_wrapping_from_looking_ahead(
    measured: Measure, later: list[tuple[int, int]], found: tuple[int, int] | None
) -> None:
    change = torch.ones(8, 8, dtype=torch.float64).triu()
    for number, (position, row) in enumerate(later, 1):
        change[position, row] = number
    node = sums(measured).bench.recording.outputs[0]
    leak = wrapped(Reach(Entry(node, "x", 1), node, change))
    assert (None if leak is None else (leak.later, leak.earlier)) == found
