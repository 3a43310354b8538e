"""Where tables of angles get their layout, and what they follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from mha_lint.capture import record
from mha_lint.facts.bench import Bench
from mha_lint.facts.positions.origins import (
    follows_input,
    follows_parameters,
    layout_span,
    repeat_span,
)
from tests.facts.positions.test_turns import turn_of_q

if TYPE_CHECKING:
    from tests.facts.conftest import Case

Rotary = Callable[..., "Case"]

MADE = (
    '        self.register_buffer("speed", 100.0 ** (-torch.arange(0, self.d_k, 2) / self.d_k))\n'
)
USED = (
    "        place = torch.arange(x.shape[-2])\n"
    "        angle = place[:, None] * self.speed\n"
    "        angle = torch.cat((angle, angle), dim=-1)\n"
)
KEPT = "        cos, sin = self.cos[:x.shape[-2]], self.sin[:x.shape[-2]]\n"
READ = ("x * angle.cos() + other * angle.sin()", "x * cos + other * sin")


def layout(case: Case) -> str:
    turn = turn_of_q(case)
    span = layout_span(case.bench, turn.sides, 6)
    assert span is not None
    return case.text.splitlines()[span.line - 1].strip()


def test_a_table_that_is_made_in_the_call(rotary: Rotary) -> None:
    assert layout(rotary()) == "angle = torch.cat((angle, angle), dim=-1)"


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (
            "        angle = torch.outer(torch.arange(9.0), 100 ** (-torch.arange(0, 6, 2) / 6))\n"
            "        angle = angle.repeat(1, 2)\n"
            '        self.register_buffer("cos", angle.cos())\n'
            '        self.register_buffer("sin", angle.sin())\n',
            "angle = angle.repeat(1, 2)",
        ),
        (
            "        angle = torch.outer(torch.arange(9.0), 100 ** (-torch.arange(0, 6, 2) / 6))\n"
            '        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())\n'
            '        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())\n',
            'self.register_buffer("cos", torch.cat((angle, angle), -1).cos())',
        ),
        ("        self.cos, self.sin = table(9, 6)\n", "angle = torch.stack((angle, angle), 1)"),
        (
            "        self.cos = 1.0 * torch.randn(9, 6)\n        self.sin = torch.randn(9, 6)\n",
            "self.cos = 1.0 * torch.randn(9, 6)",
        ),
    ],
    ids=["a variable", "the same statement", "a helper", "unknown"],
)
def test_a_table_that_is_kept(rotary: Rotary, made: str, line: str) -> None:
    helper = (
        "class MHA(nn.Module):\n",
        "def table(count, width):\n"
        "    angle = torch.arange(count)[:, None] * 100 ** (-torch.arange(0, width, 2) / width)\n"
        "    angle = torch.stack((angle, angle), 1)\n"
        "    angle = angle.reshape(count, width)\n"
        "    return angle.cos(), angle.sin()\n\n\n"
        "class MHA(nn.Module):\n",
    )
    assert layout(rotary((MADE, made), (USED, KEPT), READ, helper)) == line


def test_what_tables_follow(rotary: Rotary) -> None:
    case = rotary()
    assert not follows_input(case.bench, turn_of_q(case).sides)
    assert not follows_parameters(case.bench, turn_of_q(case).sides)


def test_the_type_of_an_argument_is_not_followed(rotary: Rotary) -> None:
    case = rotary(("torch.arange(x.shape[-2])", "torch.arange(x.shape[-2]).type_as(x)"))
    assert not follows_input(case.bench, turn_of_q(case).sides)


def test_learned_speeds(rotary: Rotary) -> None:
    case = rotary(
        (MADE, "        self.speed = nn.Parameter(torch.rand(3))\n"),
    )
    assert follows_parameters(case.bench, turn_of_q(case).sides)


def test_places_that_are_passed(rotary: Rotary) -> None:
    case = rotary(
        ("def forward(self, x):", "def forward(self, x, place):"),
        ("def rotate(self, x):", "def rotate(self, x, place):"),
        ("        place = torch.arange(x.shape[-2])\n", ""),
        ("self.rotate(q), self.rotate(k)", "self.rotate(q, place), self.rotate(k, place)"),
        call="torch.randn(2, 5, 24), torch.tensor([0, 1, 2, 0, 1])",
    )
    assert follows_input(case.bench, turn_of_q(case).sides)


def test_where_positions_become_alike(rotary: Rotary) -> None:
    case = rotary(
        ("place = torch.arange(x.shape[-2])", "place = torch.arange(x.shape[-2]).clamp(max=3)")
    )
    span = repeat_span(case.bench, turn_of_q(case).sides, 5, 3, 4)
    assert case.marked(span) == "torch.arange(x.shape[-2]).clamp(max=3)"
    assert repeat_span(case.bench, turn_of_q(case).sides, 5, 0, 1) is None


class Boxes(nn.Module):
    """Looks up the width of each box: turned around, right and left edges give none."""

    def __init__(self) -> None:
        super().__init__()
        self.widths = nn.Embedding(30, 6)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        table: Tensor = self.widths(edges[..., 1] - edges[..., 0])
        return x + table


def test_a_table_that_fails_on_other_inputs_follows_them() -> None:
    edges = torch.stack((torch.arange(5), torch.arange(5) + 7), -1).expand(2, 5, 2).contiguous()
    bench = Bench.of(record(Boxes(), (torch.randn(2, 5, 6), edges), {}))
    (table,) = (n for n in bench.recording.graph.nodes if n.meta.get("op") == "embedding")
    assert follows_input(bench, (table,))
