"""A summary of the whole may be read where the caller gets it as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.causal.mixing import joins
from mha_lint.facts.causal.summaries import comes_by_a_returned_summary

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

SHAPE = "        B, T, C = x.shape\n"
RETURN = "        return self.out_proj(merged)\n"


@pytest.mark.parametrize(
    ("front", "returned", "meant"),
    [
        (("z = x.mean(1)", "x = x + z[:, None]"), "z", True),
        # Mean and variance are returned, and what is drawn from them is read.
        (("m, s = x.mean(1), x.var(1)", "x = x + (m + s.sqrt() * 0.3)[:, None]"), "m, s", True),
        # What the summary costs is returned.
        (("z = x.mean(1)", "x = x + z[:, None]"), "z.square().sum()", True),
        (("z = x.mean(1)", "x = x + z[:, None]"), "", False),
        # Something else is returned than what is read.
        (("z = x.mean(1)", "x = x + x.amax(1, keepdim=True)"), "z", False),
        # Each position gets a row of its own: no summary.
        (("x = x + x.flip(1).cumsum(1).flip(1)",), "x", False),
    ],
)
def test_by_a_returned_summary(
    measured: Measure, front: tuple[str, ...], returned: str, meant: bool
) -> None:
    lines = "".join(f"        {line}\n" for line in front)
    back = f"        return self.out_proj(merged), {returned}\n" if returned else RETURN
    bench = measured((SHAPE, f"{lines}{SHAPE}"), *([(RETURN, back)] if returned else [])).bench
    found = joins(bench, [m for s in bench.sites for m in s.all], 5)
    assert found is not None
    assert comes_by_a_returned_summary(bench, found) is meant
