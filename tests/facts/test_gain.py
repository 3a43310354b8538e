"""Gains of single stages: operands, product, scores, weights, values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.facts.gain import (
    contraction_gain,
    factor_nodes,
    operand_gain,
    path_gain,
    score_gain,
    weight_gain,
)
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

Known = Callable[[Any], Any]

SCALE = "        scores = scores / math.sqrt(self.d_k)\n"


def with_q(case_of: Measure, made: str) -> Case:
    return case_of(("        scores = q @", f"        q = {made}\n        scores = q @"))


@pytest.mark.parametrize(
    ("made", "gain"),
    [
        ("q", 1.0),
        ("q * 3", 3.0),
        ("q / -4", 0.25),
        ("(q * 2).transpose(1, 2).transpose(1, 2) * 2", 4.0),
        ("torch.cat((-q[..., 3:], q[..., :3]), -1)", 1.0),
        ("q + 5", 1.0),
    ],
)
def test_of_an_operand(made: str, gain: float, measured: Measure) -> None:
    case = with_q(measured, made)
    (site,) = case.bench.sites
    assert site.q is not None and site.k is not None
    assert operand_gain(case.bench, site.q).value == pytest.approx(gain, rel=1e-6)
    assert operand_gain(case.bench, site.k).value == pytest.approx(1, rel=1e-6)


def test_of_projections_that_are_added_up(measured: Measure) -> None:
    case = measured(
        ("self.h = num_heads",
         "self.h = num_heads\n"
         "        self.r_proj = nn.Linear(d_model, d_model)\n"
         "        self.places = nn.Parameter(torch.randn(9, d_model))"),
        ("self.q_proj(x).view", "(self.q_proj(x) + self.r_proj(self.places[:T])).view"),
        ("        scores = q @", "        q = q * 3\n        scores = q @"),
    )  # fmt: skip
    (site,) = case.bench.sites
    assert site.q is not None
    assert operand_gain(case.bench, site.q).value == pytest.approx(3, rel=1e-6)


def test_of_a_rotation(measured: Measure) -> None:
    case = measured(
        ("        scores = q @",
         "        angle = torch.arange(T)[:, None] / 10 ** torch.arange(3)\n"
         "        c, s = angle.cos(), angle.sin()\n"
         "        a, b = q.chunk(2, -1)\n"
         "        q = torch.cat((a * c - b * s, a * s + b * c), -1)\n"
         "        scores = q @"),
    )  # fmt: skip
    (site,) = case.bench.sites
    assert site.q is not None
    assert operand_gain(case.bench, site.q).value == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("made", ["F.normalize(q, dim=-1)", "F.layer_norm(q, (self.d_k,))"])
def test_a_norm_is_told(made: str, measured: Measure) -> None:
    case = with_q(measured, made)
    (site,) = case.bench.sites
    assert site.q is not None
    found = operand_gain(case.bench, site.q)
    assert (found.value, found.normalised, found.why) == (None, True, "normalised")


def test_a_factor_that_depends_on_the_position(measured: Measure) -> None:
    case = with_q(measured, "q * torch.arange(1, T + 1)[:, None]")
    (site,) = case.bench.sites
    assert site.q is not None
    found = operand_gain(case.bench, site.q)
    assert (found.value, found.normalised) == (None, False)
    assert found.why == "is not multiplied by one number (1 to 5)"


def test_of_the_product(measured: Measure) -> None:
    assert contraction_gain(measured().bench, measured().bench.sites[0]) == 1
    text = SPELLINGS["bmm"].text.replace(
        "scores = torch.bmm(q, k.transpose(1, 2))",
        "scores = torch.baddbmm(torch.ones(1, T, T), q, k.transpose(1, 2), beta=3, alpha=0.7)",
    )
    case = measured(text=text)
    assert contraction_gain(case.bench, case.bench.sites[0]) == pytest.approx(0.7, rel=1e-7)


@pytest.mark.parametrize(
    ("after", "gain"),
    [
        ("scores", 1.0),
        ("scores * 0.5 + 7", 0.5),
        ("scores.masked_fill(torch.ones(T, T).triu(1).bool(), float('-inf')) / 3", 1 / 3),
        ("2 * torch.tanh(scores)", 2.0),
    ],
)
def test_of_the_scores(after: str, gain: float, measured: Measure) -> None:
    case = measured((SCALE, f"        scores = {after}\n"))
    found = score_gain(case.bench, case.bench.sites[0])
    assert found.value == pytest.approx(gain, rel=1e-6)
    assert (found.per_head, found.why) == ((), "")


def test_of_scores_with_a_factor_for_each_position(measured: Measure) -> None:
    case = measured((SCALE, "        scores = scores * torch.arange(1, T + 1)[:, None]\n"))
    found = score_gain(case.bench, case.bench.sites[0])
    assert found.value is None
    assert found.why.startswith(
        "the scores are multiplied by a factor that depends on the position"
    )


def test_of_the_weights(measured: Measure) -> None:
    assert weight_gain(measured().bench, measured().bench.sites[0]) == pytest.approx(1)
    softmax = "scores.softmax(dim=-1)"
    scaled = measured((softmax, softmax + " * 3"))
    assert weight_gain(scaled.bench, scaled.bench.sites[0]) == pytest.approx(3, rel=1e-7)
    again = measured(
        (softmax, f"{softmax} * 3\n        weights = weights / weights.sum(-1, keepdim=True)")
    )
    assert weight_gain(again.bench, again.bench.sites[0]) == 1


def test_of_the_values(measured: Measure) -> None:
    case = measured(("context = weights @ v", "context = weights @ v * 0.2"))
    (site,), (path,) = case.bench.sites, case.measured.paths
    assert path_gain(case.bench, site.context, path.merged) == pytest.approx(0.2, rel=1e-7)
    assert path_gain(case.bench, site.context, site.context) == 1


def test_the_nodes_that_multiply(measured: Measure) -> None:
    case = measured(
        (
            SCALE,
            "        scores = scores * 2\n        scores = scores + 1\n        scores = scores / self.tau\n",
        ),
        (
            "self.h = num_heads",
            "self.h = num_heads\n        self.tau = nn.Parameter(torch.ones(()))",
        ),
    )
    (site,) = case.bench.sites
    first, second = factor_nodes(case.bench, site.scores, site.normaliser.logits)
    assert first[1] == pytest.approx(2)
    assert (first[2], second[2]) == (False, True)
    assert [n.meta["op"] for n in (first[0], second[0])] == ["mul", "div"]


NORMED = """\
class Normed(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.qk = nn.Sequential(nn.Conv2d(width, 2 * inner, 1, bias=False), nn.BatchNorm2d(2 * inner))
        self.v, self.out = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        q, k = self.qk(x).flatten(2).chunk(2, dim=1)
        weights = (q.transpose(1, 2) @ k * q.shape[1] ** -0.5).softmax(-1)
        return self.out((self.v(x).flatten(2) @ weights.transpose(1, 2)).view_as(x))
"""


def test_a_batch_norm_is_part_of_the_projection(measured: Measure, known: Known) -> None:
    case = measured(text=NORMED, build="Normed(12, 6)", call="torch.randn(2, 12, 4, 5)")
    scale = known(case.site.scale)
    assert scale.value == pytest.approx(6**-0.5, rel=1e-6)
    assert scale.right


def test_a_rotation_by_a_table_in_a_half_type_has_one_gain(measured: Measure, known: Known) -> None:
    turn = (
        "angles = torch.arange(T)[:, None] * torch.tensor([1.0, 0.3, 0.1])\n"
        "        cos, sin = angles.cos().half(), angles.sin().half()\n"
        "        def turned(t):\n"
        "            a, b = t.chunk(2, -1)\n"
        "            return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)\n"
        "        q, k = turned(q), turned(k)\n"
        "        scores = q @ k.transpose(-2, -1)"
    )
    half = {"build": "MHA(24, 4).half()", "call": "torch.randn(2, 5, 24).half()"}
    case = measured(("scores = q @ k.transpose(-2, -1)", turn), **half)
    site = case.bench.sites[0]
    assert site.q is not None
    gain = operand_gain(case.bench, site.q)
    assert gain.value == pytest.approx(1, rel=2e-3)
    assert known(case.site.scale).right


def test_of_an_operand_rotated_by_tables_that_are_given(measured: Measure) -> None:
    for turned, gain in (("cos, sin", 1.0), ("1.5 * cos, 1.5 * sin", 1.5)):
        case = measured(
            ("def forward(self, x):", "def forward(self, x, cos, sin):"),
            ("        scores = q @",
             f"        c, s = {turned}\n"
             "        q = q * c + torch.cat((-q[..., 3:], q[..., :3]), -1) * s\n"
             "        scores = q @"),
            call="torch.randn(2, 5, 24), *(f(torch.arange(5.0)[:, None] * torch.ones(6))"
            " for f in (torch.cos, torch.sin))",
        )  # fmt: skip
        (site,) = case.bench.sites
        assert site.q is not None
        assert operand_gain(case.bench, site.q).value == pytest.approx(gain, rel=1e-5)
