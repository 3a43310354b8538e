"""Initial weights that make up for a scale, and those that only look so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

LINE = "        scores = scores / math.sqrt(self.d_k)\n"
LAST = "self.out_proj = nn.Linear(d_model, d_model)"


def drawn(text: str) -> tuple[str, str]:
    return LAST, f"{LAST}\n        {text}"


@pytest.mark.parametrize("which", ["q", "k"])
def test_one_weight_alone_makes_up_for_it(which: str, measured: Measure, known: Known) -> None:
    edit = drawn(
        f"nn.init.normal_(self.{which}_proj.weight, std=(d_model * self.d_k) ** -0.5)",
    )
    scale = known(measured((LINE, ""), edit).site.scale)
    assert scale.named == "1"
    assert scale.folded == pytest.approx(6**-0.5, rel=0.1)
    ratio = scale.init_ratio if which == "q" else 1 / scale.init_ratio
    assert ratio == pytest.approx(0.707, rel=0.1)  # the other weight is that of nn.Linear


@pytest.mark.parametrize(
    "text",
    [
        "nn.init.normal_(self.q_proj.weight, std=d_model**-0.5)",  # larger, not smaller
        "nn.init.normal_(self.q_proj.weight, std=0.02)",  # smaller, by nothing of head_dim
        "[nn.init.normal_(p.weight, std=(d_model * self.d_k) ** -0.5) for p in"
        " (self.q_proj, self.k_proj, self.v_proj)]",  # alike: v too is only small
    ],
)
def test_other_initial_weights_do_not(text: str, measured: Measure, known: Known) -> None:
    assert known(measured((LINE, ""), drawn(text)).site.scale).folded is None
