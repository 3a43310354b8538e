"""Tables of angles, cosines and sines that were made in half types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.facts.test_rotation_loss import case_of

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

READ = """\
cos, sin = self.cos[:n].to(x.dtype), self.sin[:n].to(x.dtype)
        left, right = x.chunk(2, -1)
        return torch.cat((left * cos - right * sin, left * sin + right * cos), -1)
        angles = cos"""
KEPT = "\n        self.register_buffer('cos', angles.cos())\n        self.register_buffer('sin', angles.sin())"


def table(angles: str) -> str:
    return f"angles = {angles}{KEPT}"


@pytest.mark.parametrize(("dtype", "least"), [("float16", 0.2), ("bfloat16", 2.0)])
def test_a_table_of_angles_in_half(
    dtype: str, least: float, measured: Measure, known: Known
) -> None:
    t = f"torch.{dtype}"
    made = table(f"torch.outer(torch.arange(2048, dtype={t}), rates.to({t}))")
    case = case_of(measured, READ, table=made)
    found = known(case.site.rotation_loss)
    assert found.lossy and found.error > least
    assert (found.dtype, found.length) == (dtype, 2048)
    assert found.span.line == case.line("'cos'")


@pytest.mark.parametrize(
    "angles",
    [
        "torch.outer(torch.arange(2048).float(), rates)",
        "torch.outer(torch.arange(2048).float() // 45, rates)",
        "torch.outer(torch.arange(2048).float(), rates * torch.rand_like(rates))",
        "torch.outer(torch.arange(2048).float(), rates) * 0.25",
        "torch.outer(torch.arange(16, dtype=torch.float16), rates.half())",
    ],
)
def test_tables_that_are_cast_only(angles: str, measured: Measure, why: Why) -> None:
    fact = case_of(measured, READ, table=table(angles)).site.rotation_loss
    assert why(fact)[0] == "NotApplicable"


def test_a_table_of_angles_that_is_cast_with_the_module(measured: Measure, known: Known) -> None:
    kept = "self.register_buffer('turns', torch.outer(torch.arange(1000).float(), rates))"
    case = case_of(measured, "angles = self.turns[:n]", table=kept)
    found = known(case.site.rotation_loss)
    assert found.lossy and 0.1 < found.error < 0.6
    assert found.span.line == case.line("'turns'")
