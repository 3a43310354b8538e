"""Rotary angles in half types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

TEXT = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        size = d_model // num_heads
        rates = 1.0 / 10000 ** (torch.arange(0, size, 2) / size)
        TABLE

    def turned(self, x):
        n = x.size(-2)
        ANGLES
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        left, right = x.chunk(2, -1)
        return torch.cat((left * cos - right * sin, left * sin + right * cos), -1)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v)
        return self.out(y.transpose(1, 2).flatten(2))
"""
HALF = "MHA(48, 2).half()", "torch.randn(1, {}, 48).half()"
RATES = "self.rates = rates"


def case_of(
    measured: Measure, angles: str, *, table: str = RATES, n: int = 7, half: bool = True
) -> Any:
    text = TEXT.replace("TABLE", table).replace("ANGLES", angles)
    build, call = HALF[0], HALF[1].format(n)
    if not half:
        build, call = build.replace(".half()", ""), call.replace(".half()", "")
    return measured(text=text, build=build, call=call)


@pytest.mark.parametrize(
    "angles",
    [
        "angles = torch.outer(torch.arange(n).to(x), self.rates.to(x))",
        "angles = torch.arange(n, dtype=x.dtype)[:, None] * self.rates.half()",
        "angles = torch.einsum('i,j->ij', torch.arange(n).half(), self.rates.half())",
        "angles = (torch.arange(n)[:, None] * self.rates.half()).float()",
    ],
)
def test_angles_in_half(angles: str, measured: Measure, known: Known) -> None:
    case = case_of(measured, angles)
    found = known(case.site.rotation_loss)
    assert found.lossy
    assert (found.dtype, found.length, found.recorded) == ("float16", 1024, False)
    assert found.error > 0.05 > found.cast * 8
    assert found.span.line == case.line("angles = ")


def test_the_recorded_length_counts_where_it_is_long(measured: Measure, known: Known) -> None:
    angles = "angles = torch.outer(torch.arange(n).to(x), self.rates.to(x))"
    found = known(case_of(measured, angles, n=300).site.rotation_loss)
    assert (found.recorded, found.length, found.lossy) == (True, 300, True)
    assert found.position < 300


@pytest.mark.parametrize(
    "angles",
    [
        "angles = torch.outer(torch.arange(n).float(), self.rates)",
        "angles = torch.arange(n)[:, None] * self.rates.float()",
    ],
)
def test_angles_in_float_are_fine(angles: str, measured: Measure, why: Why) -> None:
    fact = case_of(measured, angles).site.rotation_loss
    assert why(fact) == ("NotApplicable", "no angles of positions are computed in a half type")


def test_full_precision_is_not_asked(measured: Measure, why: Why) -> None:
    angles = "angles = torch.outer(torch.arange(n).to(x), self.rates.to(x))"
    fact = case_of(measured, angles, half=False).site.rotation_loss
    assert why(fact)[0] == "NotApplicable"


def test_sines_that_are_added_to_the_states_are_no_rotation(measured: Measure, why: Why) -> None:
    case = case_of(measured, "angles = torch.outer(torch.arange(n).float(), self.rates)")
    text = case.text[case.text.index("class MHA") :].replace(
        "q, k, v = self.qkv(x)",
        "places = torch.arange(x.size(1), dtype=x.dtype)[:, None]\n        x = x + places.sin()\n"
        "        q, k, v = self.qkv(x)",
    )
    plain = text.replace("self.turned(q), self.turned(k)", "q, k")
    other = measured(text=plain, build=HALF[0], call=HALF[1].format(7))
    assert why(other.site.rotation_loss)[0] == "NotApplicable"
