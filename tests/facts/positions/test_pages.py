"""Positions that begin anew in parts of one sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.positions.absolute import measure_absolute
from mha_lint.model.facts import Known
from mha_lint.model.position_facts import RepeatedPositions

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

PAGES = """\
class Encoder(nn.Module):
    def __init__(self, words, width, heads):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(16, width)
        self.pages = nn.Embedding(16, width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, ids):
        B, T = ids.shape
        apart = None
        parts = []
        for page, part in enumerate(ids.split(4, dim=1)):
            place = torch.arange(part.shape[1])
            parts.append(self.words(part) + self.places(place))
        x = torch.cat(parts, dim=1)
        return self.attention(x, x, x, attn_mask=apart, need_weights=False)[0]
"""
LOOP = PAGES[PAGES.index("        parts = []") : PAGES.index("        return")]
RESHAPED = """\
        place = torch.arange(4)
        x = (self.words(ids.view(B, -1, 4)) + self.places(place)).view(B, T, -1)
"""
BLOCKS = "apart = torch.arange(T)[:, None] // 4 != torch.arange(T) // 4"


def pages(measured: Measure, *edits: tuple[str, str], count: int = 12) -> Case:
    call = f"torch.randint(30, (3, {count}))"
    return measured(*edits, text=PAGES, build="Encoder(30, 24, 4)", call=call)


def found_in(case: Case) -> RepeatedPositions | None:
    fact = measure_absolute(case.bench)
    assert isinstance(fact, Known), fact
    return fact.value


@pytest.mark.parametrize(
    ("edits", "count", "line"),
    [
        ([], 12, "torch.arange(part.shape[1])"),
        ([], 10, "torch.arange(part.shape[1])"),
        ([(LOOP, RESHAPED)], 12, "torch.arange(4)"),
        ([("self.places(place)", "self.places.weight[:part.shape[1]]")], 12,
         "self.places.weight[:part.shape[1]]"),
    ],
)  # fmt: skip
def test_places_begin_anew(
    measured: Measure, edits: list[tuple[str, str]], count: int, line: str
) -> None:
    case = pages(measured, *edits, count=count)
    found = found_in(case)
    what = "the position embedding"
    assert found is not None
    assert found == RepeatedPositions("restarted", what, 0, 4, count - 4, count, found.span)
    assert case.marked(found.span) == line


@pytest.mark.parametrize(
    "edits",
    [
        [("torch.arange(part.shape[1])", "torch.arange(part.shape[1]) + 4 * page")],
        [("self.places(place)", "self.places(place) + self.pages(torch.tensor(page))")],
        [("apart = None", BLOCKS)],
        [("torch.cat(parts, dim=1)", "torch.cat(parts, dim=1) + self.places(torch.arange(T))")],
    ],
)
def test_parts_that_are_told_apart(measured: Measure, edits: list[tuple[str, str]]) -> None:
    assert found_in(pages(measured, *edits)) is None


def test_parts_on_an_axis_of_their_own(measured: Measure) -> None:
    edits = [
        ("B, T = ids.shape", "B, T = ids.shape[0], 12"),
        ("ids.split(4, dim=1)", "ids.unbind(1)"),
    ]
    case = measured(
        *edits, text=PAGES, build="Encoder(30, 24, 4)", call="torch.randint(30, (2, 3, 4))"
    )
    assert found_in(case) is None
