"""Scales beside a rotation with a gain, of several products, and those that a configuration holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]

LINE = "        scores = scores / math.sqrt(self.d_k)\n"
DUE = 6**-0.5


def scaled(by: str) -> tuple[str, str]:
    return LINE, f"        scores = {by}\n"


ROTATED = """\
        angle = torch.arange(T)[:, None] * torch.tensor([1.0, 0.1, 0.01]).repeat(2)
        cos, sin = angle.cos() * FACTOR, angle.sin() * FACTOR
        q, k = (x * cos + torch.cat((-x[..., 3:], x[..., :3]), -1) * sin for x in (q, k))
        scores = q @"""


@pytest.mark.parametrize(
    ("factor", "by", "right"),
    [
        ("1.2", "self.d_k**0.5", True),
        ("1.0", "self.d_k**0.5", True),
        ("1.2", "C**0.5", False),
        ("1.2", "self.d_k", False),
    ],
)
def test_a_factor_on_the_tables_of_a_rotation_is_no_scale(
    factor: str, by: str, right: bool, measured: Measure, known: Known
) -> None:
    case = measured(
        scaled(f"scores / {by}"), ("        scores = q @", ROTATED.replace("FACTOR", factor))
    )
    scale = known(case.site.scale)
    assert scale.right is right
    due = {"self.d_k**0.5": DUE, "C**0.5": 24**-0.5, "self.d_k": 1 / 6}[by]
    assert scale.value == pytest.approx(due * float(factor) ** 2, rel=1e-5)


def test_positions_with_a_product_of_their_own_count_as_a_term(
    measured: Measure, known: Known
) -> None:
    edits = (
        ("self.h = num_heads",
         "self.h = num_heads\n"
         "        self.place = nn.Parameter(torch.randn(9, d_model))\n"
         "        self.place_q = nn.Linear(d_model, d_model)\n"
         "        self.place_k = nn.Linear(d_model, d_model)"),
        ("        weights =",
         "        a, b = (f(self.place[:T]).view(T, self.h, self.d_k).transpose(0, 1)"
         " for f in (self.place_q, self.place_k))\n"
         "        scores = scores + a @ b.mT / math.sqrt(2 * self.d_k)\n        weights ="),
    )  # fmt: skip
    scale = known(measured(scaled("scores / math.sqrt(2 * self.d_k)"), *edits).site.scale)
    assert (scale.named, scale.right, scale.terms) == ("1/sqrt(2*head_dim)", True, 2)
    scale = known(measured(scaled("scores / math.sqrt(C)"), *edits).site.scale)
    assert (scale.named, scale.right, scale.terms) == ("1/sqrt(d_model)", False, 2)
    alone = measured(scaled("scores / math.sqrt(2 * self.d_k)"))
    assert known(alone.site.scale).right is False


FACTORY = """

class Config:
    def __init__(self, **numbers):
        vars(self).update(numbers)


class Configured(MHA):
    def __init__(self, config):
        super().__init__(24, 4)
        self.config = config
        self.scale = SCALE


def make():
    return Configured(Config(width=24, attention_multiplier=1 / 6, pre_scalar=20, other=0.3)).eval()
"""


@pytest.mark.parametrize(
    ("scale", "stated"),
    [
        ("config.attention_multiplier", "attention_multiplier"),
        ("config.pre_scalar**-0.5", "1/sqrt(pre_scalar)"),
        ("config.width**-0.5", None),
        ("1 / 6", None),
        ("0.3", None),
    ],
)
def test_a_scale_that_a_configuration_holds(
    scale: str, stated: str | None, measured: Measure, known: Known
) -> None:
    text = PLAIN.replace(LINE, "        scores = scores * self.scale\n")
    case = measured(text=text + FACTORY.replace("SCALE", scale), build="make()")
    assert known(case.site.scale).stated == stated


@pytest.mark.parametrize(
    ("by", "call", "stated"),
    [
        ("scores * scale", "scale=1 / 6", "scale"),
        ("scores / self.d_k**0.5 / scale", "scale=2.0", "1/scale"),
        ("scores / self.d_k", "scale=3.0", None),
        ("scores / C**0.5", "scale=3.0", None),
    ],
)
def test_a_scale_that_the_call_passes(
    by: str, call: str, stated: str | None, measured: Measure, known: Known
) -> None:
    edits = scaled(by), ("forward(self, x)", "forward(self, x, scale=1.0)")
    case = measured(*edits, call=f"torch.randn(2, 5, 24), {call}")
    assert known(case.site.scale).stated == stated
