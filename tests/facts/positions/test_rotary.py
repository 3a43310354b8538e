"""What is measured of rotations, on one right module and edits of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.positions.rotary import measure_rotary
from mha_lint.model.facts import Known, NotApplicable
from mha_lint.model.position_facts import PairFault, RepeatedPositions, Rotary

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

Make = Callable[..., "Case"]

BOTH = "        q, k = self.rotate(q), self.rotate(k)\n"
VIEWS = tuple(
    (f"{w} = self.{w}_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)",
     f"{w} = self.{w}_proj(x).view(B, T, self.h, self.d_k)")
    for w in "qk"
)  # fmt: skip
LATE = BOTH + "        q, k = q.transpose(1, 2), k.transpose(1, 2)\n"
BY_STEP = ("def rotate(self, x):", "def rotate(self, x, sign=1, ahead=0):")
STEP = ("place = torch.arange(x.shape[-2])", "place = sign * (torch.arange(x.shape[-2]) + ahead)")


def rotary_of(case: Case) -> Rotary:
    fact = measure_rotary(case.bench, case.bench.sites[0])
    assert isinstance(fact, Known), fact
    return fact.value


def test_a_right_rotation(rotary: Make) -> None:
    case = rotary()
    fact = measure_rotary(case.bench, case.bench.sites[0])
    assert isinstance(fact, Known)
    assert fact.value == Rotary(("q", "k"))
    assert fact.evidence == (
        "q: 6 of 6 features of a head are mixed in pairs,"
        " k: 6 of 6 features of a head are mixed in pairs"
    )


def test_a_factor_in_the_tables(rotary: Make) -> None:
    case = rotary(
        ("x * angle.cos() + other * angle.sin()", "1.2 * (x * angle.cos() + other * angle.sin())")
    )
    assert rotary_of(case).gain == 1.0  # a factor of its own, not the rotation's
    case = rotary(
        (
            "x * angle.cos() + other * angle.sin()",
            "x * (1.2 * angle.cos()) + other * (1.2 * angle.sin())",
        )
    )
    assert rotary_of(case) == Rotary(("q", "k"), gain=1.44)


def test_no_rotation(measured: Measure, why: Callable[[Any], tuple[str, str]]) -> None:
    bench = measured().bench
    assert why(measure_rotary(bench, bench.sites[0])) == (
        "NotApplicable", "neither queries nor keys are rotated"
    )  # fmt: skip


def test_angles_of_zero(rotary: Make) -> None:
    case = rotary(("angle = place[:, None]", "angle = 0 * place[:, None]"))
    fact = measure_rotary(case.bench, case.bench.sites[0])
    assert fact == NotApplicable("no angle differs from zero in this call")


@pytest.mark.parametrize(
    ("edit", "fault", "line"),
    [
        (
            ("torch.cat((angle, angle), dim=-1)", "angle.repeat_interleave(2, -1)"),
            PairFault.ANGLES, "angle.repeat_interleave(2, -1)",
        ),
        (("(-high, low)", "(high, low)"), PairFault.SIGNS, ""),
        (("(-high, low)", "(-low, high)"), PairFault.ALONE, ""),
        (("low, high = x.chunk(2, dim=-1)", "low, high = x[..., ::2], x[..., 1::2]"), PairFault.PARTNERS, ""),
    ],
)  # fmt: skip
def test_pairs(rotary: Make, edit: tuple[str, str], fault: PairFault, line: str) -> None:
    case = rotary(edit)
    found = rotary_of(case).pairs
    assert found is not None
    assert (found.fault, found.operands) == (fault, ("q", "k"))
    assert case.marked(found.table) == line
    assert case.marked(found.rotation).startswith("torch.cat((")


def test_pairs_across_heads(rotary: Make) -> None:
    case = rotary(
        ("        q = self.q_proj(x).view", "        q = self.rotate(self.q_proj(x)).view"),
        ("        k = self.k_proj(x).view", "        k = self.rotate(self.k_proj(x)).view"),
        (BOTH, ""),
        ("torch.arange(0, self.d_k, 2) / self.d_k", "torch.arange(0, d_model, 2) / d_model"),
    )
    found = rotary_of(case).pairs
    assert found is not None and found.fault is PairFault.TORN
    assert case.marked(found.rotation) == "self.rotate(self.q_proj(x))"
    assert found.example == (
        "feature 0 of head 0 is turned with channel 12, which is in another head"
    )


def test_by_head(rotary: Make) -> None:
    case = rotary(*VIEWS, (BOTH, LATE))
    found = rotary_of(case).axis
    assert found is not None
    assert (found.axis, found.operands) == ("heads", ("q", "k"))
    assert case.marked(found.span) == "self.rotate(q)"
    assert rotary_of(case).repeated is None


def test_by_sample(rotary: Make) -> None:
    case = rotary(
        ("place = torch.arange(x.shape[-2])", "place = torch.arange(x.shape[0])[:, None, None]"),
        ("place[:, None] * self.speed", "place[..., None] * self.speed"),
    )
    found = rotary_of(case).axis
    assert found is not None and found.axis == "samples"


def test_values(rotary: Make) -> None:
    case = rotary((BOTH, BOTH + "        v = self.rotate(v)\n"))
    found = rotary_of(case)
    assert found.values_turned and found.turned == ("q", "k", "v")
    assert case.marked(found.values) == "self.rotate(v)"


def test_values_turned_back(rotary: Make) -> None:
    case = rotary(
        (BOTH, BOTH + "        v = self.rotate(v)\n"),
        BY_STEP,
        STEP,
        ("scores.softmax(dim=-1) @ v", "self.rotate(scores.softmax(dim=-1) @ v, -1)"),
    )
    assert rotary_of(case) == Rotary(("q", "k"))


@pytest.mark.parametrize(
    ("uses", "fault", "shift"),
    [
        ("self.rotate(q), k", "one-sided", 0),
        ("q, self.rotate(k)", "one-sided", 0),
        ("self.rotate(q), self.rotate(k, -1)", "opposite", 0),
        ("self.rotate(q), self.rotate(k, 1, 2)", "shifted", 2),
        ("self.rotate(q, 1, 1), self.rotate(k)", "shifted", -1),
        ("self.rotate(q), self.rotate(k, 2)", "different", 0),
    ],
)
def test_uneven(rotary: Make, uses: str, fault: str, shift: int) -> None:
    found = rotary_of(rotary(BY_STEP, STEP, ("self.rotate(q), self.rotate(k)", uses))).uneven
    assert found is not None
    assert (found.fault, found.shift) == (fault, shift)
    if fault == "one-sided":
        assert found.turned == ("q" if uses.startswith("self") else "k")


def test_a_class_token_without_a_position_asks_rotated_keys(rotary: Make) -> None:
    case = rotary(
        (BOTH, "        q, k = q[:, :, :1], self.rotate(k)\n"),
        ("context.transpose(1, 2).reshape(B, T, C)", "context.transpose(1, 2).reshape(B, 1, C)"),
    )
    assert rotary_of(case).uneven is None


def test_learned_queries_ask_rotated_keys(rotary: Make) -> None:
    case = rotary(
        ("        self.q_proj = nn.Linear(d_model, d_model)\n",
         "        self.q_proj = nn.Linear(d_model, d_model)\n"
         "        self.latents = nn.Parameter(torch.randn(1, 3, d_model))\n"),
        ("self.q_proj(x).view(B, T, self.h", "self.q_proj(self.latents).view(1, 3, self.h"),
        (BOTH, "        k = self.rotate(k)\n"),
        ("context.transpose(1, 2).reshape(B, T, C)", "context.transpose(1, 2).reshape(B, 3, C)"),
    )  # fmt: skip
    assert rotary_of(case).uneven is None


@pytest.mark.parametrize(
    ("place", "fault", "first", "second", "count"),
    [
        ("torch.arange(5).clamp(max=2)", "clamped", 2, 3, 2),
        ("torch.arange(5) % 3", "wrapped", 0, 3, 2),
        ("torch.full((5,), 4)", "same", 0, 1, 4),
    ],
)
def test_repeated(
    rotary: Make, place: str, fault: str, first: int, second: int, count: int
) -> None:
    case = rotary(("torch.arange(x.shape[-2])", place))
    found = rotary_of(case).repeated
    assert found is not None
    span = found.span
    assert found == RepeatedPositions(fault, "the rotation", first, second, count, 5, span)
    assert case.marked(span) == place


@pytest.mark.parametrize("place", ["torch.arange(6) // 2", "torch.arange(6) % 3"])
def test_frames_and_grids(rotary: Make, place: str) -> None:
    case = rotary(("torch.arange(x.shape[-2])", place), call="torch.randn(2, 6, 24)")
    assert rotary_of(case) == Rotary(("q", "k"))


def test_places_that_are_passed_are_the_callers(rotary: Make) -> None:
    case = rotary(
        ("def forward(self, x):", "def forward(self, x, place):"),
        ("def rotate(self, x):", "def rotate(self, x, place):"),
        ("        place = torch.arange(x.shape[-2])\n", ""),
        ("self.rotate(q), self.rotate(k)", "self.rotate(q, place), self.rotate(k, place)"),
        call="torch.randn(2, 5, 24), torch.tensor([0, 1, 2, 2, 2])",
    )
    assert rotary_of(case) == Rotary(("q", "k"))


CACHE = (
    ("def forward(self, x):", "def forward(self, x, past):"),
    (BOTH, "        n = past.shape[2]\n"
     "        q, k = self.rotate(q, 1, n), self.rotate(k, 1, n)\n"
     "        k, v = torch.cat((past, k), 2), torch.cat((past, v), 2)\n"),
    BY_STEP,
    STEP,
)  # fmt: skip


def test_beside_a_cache(rotary: Make) -> None:
    case = rotary(*CACHE, call="torch.randn(2, 5, 24), torch.randn(2, 4, 3, 6)")
    assert rotary_of(case) == Rotary(("q", "k"))


def test_what_a_cache_makes_of_positions_is_not_judged_here(rotary: Make) -> None:
    late = ("self.rotate(k, 1, n)", "self.rotate(k)")
    edits = (*CACHE[:1], (CACHE[1][0], CACHE[1][1].replace(*late)), *CACHE[2:])
    case = rotary(*edits, call="torch.randn(2, 5, 24), torch.randn(2, 4, 3, 6)")
    assert rotary_of(case) == Rotary(("q", "k"))


def test_learned_speeds_of_each_head(rotary: Make) -> None:
    case = rotary(
        ('self.register_buffer("speed", 100.0 ** (-torch.arange(0, self.d_k, 2) / self.d_k))',
         "self.speed = nn.Parameter(torch.rand(num_heads, 1, 3))"),
    )  # fmt: skip
    assert rotary_of(case) == Rotary(("q", "k"))
