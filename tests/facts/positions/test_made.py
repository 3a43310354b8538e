"""Where a linear bias and its slopes are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mha_lint.facts.positions.bias import _tables
from mha_lint.facts.positions.made import line_span, slopes_span

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

BIAS = """\
        scores = scores / math.sqrt(self.d_k)
        slopes = 2.0 ** (-8 * torch.arange(1, self.h + 1) / self.h)
        place = torch.arange(T)
        bias = -slopes[:, None, None] * place
        scores = scores + bias
"""
SCALED = "        scores = scores / math.sqrt(self.d_k)\n"


def test_the_lines(measured: Measure) -> None:
    case = measured((SCALED, BIAS))
    tables = _tables(case.bench, case.bench.sites[0])
    heads = (0.25, 0.0625, 2**-6, 2**-8)
    found = line_span(case.bench, tables, -0.25, 4, 1.0)
    assert case.marked(found) == "-slopes[:, None, None] * place"
    assert line_span(case.bench, tables, 0.7, 4, 1.0) is None
    found = slopes_span(case.bench, tables, heads)
    assert case.marked(found) == "2.0 ** (-8 * torch.arange(1, self.h + 1) / self.h)"
    assert slopes_span(case.bench, tables, (0.5, 0.4, 0.3, 0.2)) is None
