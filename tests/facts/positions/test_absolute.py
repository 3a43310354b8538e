"""What is added to the tokens by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.positions.absolute import measure_absolute
from mha_lint.model.facts import Known
from mha_lint.model.position_facts import RepeatedPositions

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

TOKENS = """\
class Encoder(nn.Module):
    def __init__(self, words, width, heads):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(16, width)
        self.kinds = nn.Embedding(2, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, ids):
        B, T = ids.shape
        place = torch.arange(T)
        x = self.words(ids) + self.places(place)
        return self.attention(x, x, x, need_weights=False)[0]
"""
ADDED = "self.words(ids) + self.places(place)"


@pytest.fixture
def tokens(measured: Measure) -> Callable[..., Case]:
    def run(*edits: tuple[str, str], call: str = "torch.randint(30, (3, 7))") -> Case:
        return measured(*edits, text=TOKENS, build="Encoder(30, 24, 4)", call=call)

    return run


def found_in(case: Case) -> RepeatedPositions | None:
    fact = measure_absolute(case.bench)
    assert isinstance(fact, Known), fact
    return fact.value


def test_right_positions(tokens: Callable[..., Case]) -> None:
    assert found_in(tokens()) is None


def test_nothing_is_added(measured: Measure, why: Callable[[Any], tuple[str, str]]) -> None:
    assert why(measure_absolute(measured().bench)) == (
        "NotApplicable", "nothing is added to the tokens by position"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("place", "fault", "first", "second", "count"),
    [
        ("torch.arange(T).clamp(max=4)", "clamped", 4, 5, 2),
        ("torch.arange(T) % 5", "wrapped", 0, 5, 2),
        ("torch.zeros_like(ids)", "same", 0, 1, 6),
        ("(torch.arange(T) - 1).clamp(min=0)", "repeated", 0, 1, 1),
    ],
)
def test_faults(
    tokens: Callable[..., Case], place: str, fault: str, first: int, second: int, count: int
) -> None:
    case = tokens(("place = torch.arange(T)", f"place = {place}"))
    found = found_in(case)
    assert found is not None
    what = "the position embedding"
    assert found == RepeatedPositions(fault, what, first, second, count, 7, found.span)
    assert case.marked(found.span) == place


def test_positions_along_the_batch(tokens: Callable[..., Case]) -> None:
    case = tokens(
        ("place = torch.arange(T)", "place = torch.arange(B)[:, None]"),
        call="torch.randint(30, (3, 7))",
    )
    found = found_in(case)
    assert found is not None and found.fault == "batch"
    assert case.marked(found.span) == ADDED


def test_a_table_that_is_sliced_along_the_batch(tokens: Callable[..., Case]) -> None:
    case = tokens((ADDED, "self.words(ids) + self.places.weight[:B, None]"))
    found = found_in(case)
    assert found is not None and found.fault == "batch"


@pytest.mark.parametrize(
    "added",
    [
        "self.words(ids) + self.places(place) + self.kinds(torch.zeros_like(ids))",
        "self.words(ids) + self.places(place.expand_as(ids))",
        "self.words(ids) + self.kinds(torch.zeros_like(ids))",
        "self.words(ids) + self.kinds((place > 2).long())",
        "self.words(ids) + self.places(torch.tensor([0, 1, 2, 3, 3, 3, 3]))",
        "self.words(ids) + self.places(place // 3) + self.kinds.weight[:1]",
        "self.words(ids) + self.places.weight[0]",
        "self.words(ids) + self.places(place) * (ids != 3)[..., None]",
    ],
    ids=[
        "kinds beside positions",
        "numbers expanded to the batch",
        "kinds alone",
        "two kinds",
        "kinds of a prompt",
        "frames",
        "one vector for all",
        "none for padding",
    ],
)
def test_right(tokens: Callable[..., Case], added: str) -> None:
    case = tokens((ADDED, added))
    fact = measure_absolute(case.bench)
    assert not isinstance(fact, Known) or fact.value is None


def test_numbers_that_are_passed_are_the_callers(tokens: Callable[..., Case]) -> None:
    case = tokens(
        ("def forward(self, ids):", "def forward(self, ids, place):"),
        ("        place = torch.arange(T)\n", ""),
        call="torch.randint(30, (3, 7)), torch.tensor([0, 1, 2, 3, 3, 3, 3]).expand(3, 7)",
    )
    fact = measure_absolute(case.bench)
    assert not isinstance(fact, Known) or fact.value is None
