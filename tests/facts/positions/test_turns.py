"""Maps of pairs are found and taken apart, however they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from mha_lint.facts.positions.turns import Turn, tables_of, turns_between
from mha_lint.sites.dependence import op

if TYPE_CHECKING:
    from tests.facts.conftest import Case

Rotary = Callable[..., "Case"]

ANGLES = """\
        angle = torch.cat((angle, angle), dim=-1)
        low, high = x.chunk(2, dim=-1)
        other = torch.cat((-high, low), dim=-1)
        return x * angle.cos() + other * angle.sin()
"""
SPELLINGS = {
    "two halves joined": """\
        low, high = x.split(x.shape[-1] // 2, -1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
""",
    "written into place": """\
        half = x.shape[-1] // 2
        out = torch.empty_like(x)
        out[..., :half] = x[..., :half] * angle.cos() - x[..., half:] * angle.sin()
        out[..., half:] = x[..., half:] * angle.cos() + x[..., :half] * angle.sin()
        return out
""",
    "complex": """\
        pairs = torch.stack(x.chunk(2, -1), -1).contiguous()
        there = torch.view_as_complex(pairs) * torch.polar(torch.ones_like(angle), angle)
        return torch.cat((there.real, there.imag), -1)
""",
    "by a matrix": """\
        cos, sin = torch.diag_embed(angle.cos()), torch.diag_embed(angle.sin())
        turn = torch.cat((torch.cat((cos, -sin), -1), torch.cat((sin, cos), -1)), -2)
        return torch.einsum("tij,bhtj->bhti", turn, x)
""",
}


def turn_of_q(case: Case) -> Turn:
    q = case.bench.sites[0].q
    assert q is not None and q.source is not None
    (found,) = turns_between(case.bench, q.source.node, q.node)
    return found


def row(turn: Turn, position: int) -> list[float]:
    """Return how much of their lower and upper channel the first features of a head hold."""
    places = [
        (int(turn.first[0, 0, position, f]), int(turn.second[0, 0, position, f])) for f in (0, 3)
    ]
    assert places == [(0, 3), (0, 3)]
    return [float(x[0, 0, position, f]) for f in (0, 3) for x in (turn.a, turn.b)]


def test_a_rotation_of_halves(rotary: Rotary) -> None:
    case = rotary()
    turn = turn_of_q(case)
    assert (op(turn.entry), op(turn.exit), turn.axis) == ("transpose", "add", 3)
    cos, sin = torch.tensor(2.0).cos().item(), torch.tensor(2.0).sin().item()
    assert row(turn, 2) == pytest.approx([cos, -sin, sin, cos])
    assert [op(side) for side in turn.sides] == ["cos", "sin"]


def test_angles_of_zero_read_one_channel(rotary: Rotary) -> None:
    turn = turn_of_q(rotary())
    assert set(turn.second[:, :, 0].flatten().tolist()) == {-1}
    assert turn.first[0, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert set(turn.a[:, :, 0].flatten().tolist()) == {1.0}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings(rotary: Rotary, spelling: str) -> None:
    plain, other = turn_of_q(rotary()), turn_of_q(rotary((ANGLES, SPELLINGS[spelling])))
    for one, two in ((plain.a, other.a), (plain.b, other.b)):
        torch.testing.assert_close(one, two.expand(one.shape), atol=1e-6, rtol=0)


def test_neighbours(rotary: Rotary) -> None:
    turn = turn_of_q(
        rotary(
            ("torch.cat((angle, angle), dim=-1)", "angle.repeat_interleave(2, -1)"),
            ("x.chunk(2, dim=-1)", "x[..., ::2], x[..., 1::2]"),
            ("torch.cat((-high, low), dim=-1)", "torch.stack((-high, low), -1).flatten(-2)"),
        )
    )
    assert turn.first[0, 0, 3].tolist() == [0, 0, 2, 2, 4, 4]
    assert turn.second[0, 0, 3].tolist() == [1, 1, 3, 3, 5, 5]


def test_all_angles_of_zero(rotary: Rotary) -> None:
    turn = turn_of_q(rotary(("place[:, None] * self.speed", "0 * place[:, None] * self.speed")))
    assert set(turn.second.flatten().tolist()) == {-1}


@pytest.mark.parametrize(
    "what",
    [
        "return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)",
        "return x * angle.cos()",
        "return torch.cat((x[..., :2], x[..., 2:]), -1)",
        "return x + 0.5 * x.flip(-1).relu()",
        "return x + x.mean(-1, keepdim=True)",
    ],
)
def test_norms_gains_and_other_maps_are_none(rotary: Rotary, what: str) -> None:
    old = "return x * angle.cos() + other * angle.sin()"
    case = rotary((old, what))
    q = case.bench.sites[0].q
    assert q is not None and q.source is not None
    found = turns_between(case.bench, q.source.node, q.node)
    assert [t for t in found if bool((t.second >= 0).any())] == []


def test_what_joins_on_the_way(rotary: Rotary) -> None:
    case = rotary()
    q = case.bench.sites[0].q
    assert q is not None and q.source is not None
    assert {op(n) for n in tables_of(case.bench, q.source.node, q.node)} == {"cos", "sin"}
