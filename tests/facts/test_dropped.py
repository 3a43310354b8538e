"""Norms that are computed and dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

INIT = "self.h = num_heads"
SCORES = "scores = q @ k.transpose(-2, -1)"


@pytest.mark.parametrize("bound", ["", "normed = "])
def test_a_norm_whose_result_is_dropped(bound: str, measured: Measure, known: Known) -> None:
    case = measured(
        (INIT, INIT + "\n        self.k_norm = nn.LayerNorm(6)"),
        (SCORES, f"{bound}self.k_norm(k)\n        {SCORES}"),
    )
    ((name, span),) = known(case.facts.unused_modules)
    assert (name, case.marked(span)) == ("k_norm", "self.k_norm(k)")
    assert known(case.site.scale).normalised is False


def test_a_normalised_copy_that_is_dropped(measured: Measure, known: Known) -> None:
    case = measured((SCORES, f"F.normalize(q, dim=-1)\n        {SCORES}"))
    ((name, span),) = known(case.facts.unused_modules)
    assert (name, span.line) == ("the normalised copy of q", case.line("F.normalize"))


def test_copies_that_are_read_or_only_scaled(measured: Measure, known: Known) -> None:
    read = measured((SCORES, f"k = F.normalize(k, dim=-1)\n        {SCORES}"))
    assert known(read.facts.unused_modules) == ()
    scaled = measured((SCORES, f"q * 0.5\n        q.softmax(-1)\n        {SCORES}"))
    assert known(scaled.facts.unused_modules) == ()


def test_a_part_of_several_layers_that_is_dropped(measured: Measure, known: Known) -> None:
    case = measured(
        (INIT, INIT + "\n        self.gate = nn.Sequential(nn.Linear(24, 24), nn.Sigmoid())"),
        (SCORES, f"gate = self.gate(x)\n        {SCORES}"),
    )
    ((name, span),) = known(case.facts.unused_modules)
    assert (name, case.marked(span)) == ("gate", "self.gate(x)")


INSIDE = """\
class Inner(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(3))
        self.gate = nn.Linear(d_model, 1)

    def forward(self, x):
        q, k, v = (layer(x) for layer in self.maps)
        kept = self.gate(x)
        y = (q @ k.mT / 24**0.5).softmax(-1) @ v
        return {returned}


class Outer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.inner = Inner(d_model)

    def forward(self, x):
        made = self.inner(x)
        return made[0] if isinstance(made, tuple) else made
"""


@pytest.mark.parametrize(("returned", "told"), [("y, kept.sigmoid()", []), ("y", ["inner.gate"])])
def test_what_a_module_returns_is_dropped_by_its_caller(
    returned: str, told: list[str], measured: Measure, known: Known
) -> None:
    case = measured(text=INSIDE.format(returned=returned), build="Outer(24)")
    assert [name for name, _ in known(case.facts.unused_modules)] == told
