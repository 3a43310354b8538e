"""Initial weights that make up for a scale, and those that only look so."""

from __future__ import annotations

import re
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


CROSS = """\
class MHA(nn.Module):
    def __init__(self, d_model, source, heads, draw=None):
        super().__init__()
        self.h, self.d_k = heads, d_model // heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj, self.v_proj = nn.Linear(source, d_model), nn.Linear(source, d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        if draw is not None:
            nn.init.normal_(self.q_proj.weight, std=draw)
            nn.init.normal_(self.k_proj.weight, std=source**-0.5)

    def split(self, x):
        return x.unflatten(-1, (self.h, self.d_k)).transpose(1, 2)

    def forward(self, x, memory):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(memory)), self.split(self.v_proj(memory))
        weights = (q @ k.transpose(-2, -1)).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2))
"""


@pytest.mark.parametrize(
    ("build", "folded"),
    [
        ("MHA(4, 22, 1)", None),  # few weights, whose spread is not known well
        ("MHA(5, 22, 1)", None),
        ("MHA(24, 96, 6)", None),  # W_q starts twice as large, as each is drawn for its width
        ("MHA(96, 24, 24)", None),
        ("MHA(24, 96, 6, draw=(24 * 4)**-0.5)", 0.5),
        ("MHA(24, 96, 6, draw=24**-0.5)", None),
    ],
)
def test_weights_that_read_other_widths_start_otherwise(
    build: str, folded: float | None, measured: Measure, known: Known
) -> None:
    width, source = re.findall(r"\d+", build)[:2]
    call = f"torch.randn(2, 5, {width}), torch.randn(2, 7, {source})"
    scale = known(measured(text=CROSS, build=build, call=call).site.scale)
    assert scale.named == "1"
    assert scale.folded == (None if folded is None else pytest.approx(folded, rel=0.1))
    ratio = 1.0 if folded is None else folded
    assert scale.init_ratio == pytest.approx(ratio, rel=0.4 if int(width) < 6 else 0.15)
