"""Linear biases on one right module, and edits of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.positions.bias import measure_bias
from mha_lint.model.facts import Known
from mha_lint.model.position_facts import PositionBias, SlopeFault

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

SCALED = "        scores = scores / math.sqrt(self.d_k)\n"
BIAS = """\
        scores = scores / math.sqrt(self.d_k)
        slopes = 2.0 ** (-8 * torch.arange(1, self.h + 1) / self.h)
        place = torch.arange(T)
        distance = (place[:, None] - place).abs()
        bias = slopes[:, None, None] * distance
        scores = scores - bias
"""
CAUSAL = "        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -1e9)\n"
SLOPES = "2.0 ** (-8 * torch.arange(1, self.h + 1) / self.h)"
DISTANCE = "(place[:, None] - place).abs()"


def bias_of(case: Case) -> PositionBias:
    fact = measure_bias(case.bench, case.bench.sites[0])
    assert isinstance(fact, Known), fact
    return fact.value


def edited(text: str, *edits: tuple[str, str]) -> tuple[str, str]:
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return SCALED, text


def test_a_right_bias(measured: Measure) -> None:
    assert bias_of(measured(edited(BIAS))) == PositionBias()


def test_no_bias(measured: Measure, why: Callable[[Any], tuple[str, str]]) -> None:
    bench = measured().bench
    assert why(measure_bias(bench, bench.sites[0])) == (
        "NotApplicable", "nothing is added to the scores but masks"
    )  # fmt: skip
    bench = measured((SCALED, SCALED + CAUSAL)).bench
    assert why(measure_bias(bench, bench.sites[0]))[0] == "NotApplicable"


@pytest.mark.parametrize(
    ("edits", "fault", "sure"),
    [
        ([("scores - bias", "scores + bias")], SlopeFault.SIGN, True),
        ([(DISTANCE, "-place.expand(T, T)")], SlopeFault.FUTURE, True),
        ([(SLOPES, "torch.full((self.h,), 0.5)")], SlopeFault.SAME, True),
        ([(SLOPES, "torch.linspace(0.5, 0.1, self.h)")], SlopeFault.SLOPES, True),
        ([(SLOPES, "2.0 ** -torch.arange(self.h)")], SlopeFault.SLOPES, False),
    ],
)
def test_faults(
    measured: Measure, edits: list[tuple[str, str]], fault: SlopeFault, sure: bool
) -> None:
    case = measured(edited(BIAS, *edits))
    found = bias_of(case).slopes
    assert found is not None
    assert (found.fault, found.sure) == (fault, sure)
    assert found.due == (0.25, 0.0625, 2**-6, 2**-8)
    line = {SlopeFault.SIGN: "scores + bias", SlopeFault.SLOPES: edits[0][1]}.get(
        fault, "scores - bias"
    )
    assert case.marked(found.span) == line


@pytest.mark.parametrize(
    ("edits", "line"),
    [
        (
            [("slopes[:, None, None] * distance", "-slopes[:, None, None] * distance"),
             ("scores - bias", "scores - bias")],
            "-slopes[:, None, None] * distance",
        ),
        (
            [(DISTANCE, "place[:, None] - place"),
             ("slopes[:, None, None] * distance", "-slopes[:, None, None] * distance"),
             ("scores - bias", "scores + bias")],
            "-slopes[:, None, None] * distance",
        ),
    ],
)  # fmt: skip
def test_the_line_that_makes_the_wrong_steps(
    measured: Measure, edits: list[tuple[str, str]], line: str
) -> None:
    case = measured(edited(BIAS, *edits))
    found = bias_of(case).slopes
    assert found is not None
    assert case.marked(found.span) == line


def test_the_sentence_that_shows_it(measured: Measure) -> None:
    found = bias_of(measured(edited(BIAS, ("scores - bias", "scores + bias")))).slopes
    assert found is not None
    assert found.example == "head 0 loses 0.25 for each step nearer to the query"
    assert found.slopes == (-0.25, -0.0625, -(2**-6), -(2**-8))


@pytest.mark.parametrize(
    "edits",
    [
        [(DISTANCE, "-place.expand(T, T)"), ("scores - bias\n", "scores - bias\n" + CAUSAL)],
        [("slopes[:, None, None] * distance", "slopes.bfloat16().float()[:, None, None] * distance")],
        [("slopes[:, None, None]", "slopes.flip(0)[:, None, None]")],
        [("scores - bias", "scores - bias * math.sqrt(1 / self.d_k)")],
        [(SLOPES, "2.0 ** (-12 * torch.arange(1, self.h + 1) / self.h)")],
        [(SLOPES, "-torch.log(1 - 2.0 ** (-5 - torch.arange(self.h)))")],
        [(DISTANCE, "(place[:, None] - place) ** 2")],
        [(SLOPES, "self.q_proj.bias[:self.h].abs()")],
        [("scores - bias", "scores - bias[:1] * torch.tensor([1., 0, 0, 0])[:, None, None]")],
        [("scores - bias", "scores - x.square().mean() * bias")],
    ],
    ids=[
        "by key under a causal mask",
        "half precision",
        "another order of heads",
        "scaled with the scores",
        "a stated maximum",
        "retention",
        "squares",
        "learned",
        "one head alone",
        "made from states",
    ],
)  # fmt: skip
def test_right(measured: Measure, edits: list[tuple[str, str]]) -> None:
    case = measured(edited(BIAS, *edits))
    fact = measure_bias(case.bench, case.bench.sites[0])
    assert not isinstance(fact, Known) or fact.value == PositionBias()


def test_later_keys_that_an_argument_might_hide(measured: Measure) -> None:
    case = measured(
        edited(BIAS, (DISTANCE, "-place.expand(T, T)")),
        ("def forward(self, x):", "def forward(self, x, mask=None):"),
    )
    assert bias_of(case) == PositionBias()


def test_slopes_along_the_queries(measured: Measure) -> None:
    case = measured(
        edited(BIAS, ("slopes[:, None, None]", "slopes[:, None]")), call="torch.randn(2, 4, 24)"
    )
    found = bias_of(case).slopes
    assert found is not None and found.fault is SlopeFault.ROWS
    assert found.example == (
        "every head has the slopes 0.0625, 0.0156, 0.00391 for different queries"
    )


CACHE = (
    ("def forward(self, x):", "def forward(self, x, past):"),
    ("        scores = q @", "        k, v = torch.cat((past, k), 2), torch.cat((past, v), 2)\n"
     "        scores = q @"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("distance", "fault"),
    [
        ("(place[:, None] + 3 - torch.arange(T + 3)).abs()", None),
        ("-torch.arange(T + 3).expand(T, T + 3)", None),
        ("(place[:, None] - torch.arange(T + 3)).abs()", SlopeFault.OFFSET),
        ("place[:, None]", SlopeFault.FLAT),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_beside_a_cache(
    measured: Measure, distance: str, fault: SlopeFault | None, count: int
) -> None:
    hidden = "        scores = scores.masked_fill(torch.ones(T, T + 3).triu(4).bool(), -1e9)\n"
    if fault is SlopeFault.FLAT and count > 1:
        pytest.skip("such a table has another shape")
    case = measured(
        edited(BIAS, (DISTANCE, distance), ("scores - bias\n", "scores - bias\n" + hidden)),
        *CACHE,
        call=f"torch.randn(2, {count}, 24), torch.randn(2, 4, 3, 6)",
    )
    found = bias_of(case).slopes
    assert (found.fault if found is not None else None) is fault
