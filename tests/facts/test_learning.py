"""Projections that cannot learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

OUT = "self.out_proj = nn.Linear(d_model, d_model)"
K = "k = self.k_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)"
WEIGHTS = "weights = scores.softmax(dim=-1)"
CONTEXT = "context = weights @ v"
RETURN = "return self.out_proj(merged)"


def built(*lines: str) -> tuple[str, str]:
    return OUT, "\n        ".join((OUT, *lines))


def test_all_learn(measured: Measure, known: Known) -> None:
    found = known(measured().facts.learning)
    assert (found.detached, found.dead) == ((), ())


@pytest.mark.parametrize(
    ("edit", "operands", "learning", "at"),
    [
        ((K, f"{K}.detach()"), ("k",), ("q", "v", "o"), ".detach()"),
        ((K, f"{K}.data"), ("k",), ("q", "v", "o"), ".data"),
        ((K, f"with torch.no_grad():\n            {K}"), ("k",), ("q", "v", "o"), "k = self.k_proj"),
        ((K, K.replace("self.k_proj(x)", "F.linear(x, self.k_proj.weight.detach())")),
         ("k",), ("q", "v", "o"), "F.linear"),
        ((WEIGHTS, f"with torch.no_grad():\n            {WEIGHTS}"), ("q", "k"), ("v", "o"), "weights = "),
        ((CONTEXT, f"{CONTEXT}.detach()".replace("weights @ v", "(weights @ v)")),
         ("q", "k", "v"), ("o",), "context = "),
    ],
)  # fmt: skip
def test_a_gradient_that_is_cut_off(
    edit: tuple[str, str],
    operands: tuple[str, ...],
    learning: tuple[str, ...],
    at: str,
    measured: Measure,
    known: Known,
) -> None:
    case = measured(edit)
    (found,) = known(case.facts.learning).detached
    assert (found.operands, found.learning, found.how) == (operands, learning, "cut")
    assert found.names == tuple(f"{o}_proj.weight" for o in operands)
    assert found.influence > 0.01
    assert found.span.line == case.line(at)


FUSED = (
    ("self.q_proj = nn.Linear(d_model, d_model)", "self.qkv = nn.Linear(d_model, 3 * d_model)"),
    (
        "        self.k_proj = nn.Linear(d_model, d_model)\n        self.v_proj = nn.Linear(d_model, d_model)\n",
        "",
    ),
    ("q = self.q_proj(x)", "a, b, c = self.qkv(x).chunk(3, -1)\n        q = a"),
    ("k = self.k_proj(x)", "k = b.detach()"),
    ("v = self.v_proj(x)", "v = c"),
)


def test_a_part_of_a_fused_projection(measured: Measure, known: Known) -> None:
    (found,) = known(measured(*FUSED).facts.learning).detached
    assert (found.operands, found.names, found.learning) == (
        ("k",),
        ("qkv.weight",),
        ("q", "v", "o"),
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("self.k_proj.weight.requires_grad_(False)",),
        ("for p in self.k_proj.parameters():", "    p.requires_grad = False"),
    ],
)
def test_one_that_is_frozen(lines: tuple[str, ...], measured: Measure, known: Known) -> None:
    case = measured(built(*lines))
    (found,) = known(case.facts.learning).detached
    assert (found.operands, found.how, found.learning) == (("k",), "frozen", ("q", "v", "o"))
    assert found.span.line == case.line(lines[-1].strip())


@pytest.mark.parametrize(
    "edit",
    [
        built("for n, p in self.named_parameters():", "    p.requires_grad = n.endswith('bias')"),
        built("nn.init.zeros_(self.out_proj.weight)"),
        (WEIGHTS, "scores = scores - scores.amax(-1, keepdim=True).detach()\n        " + WEIGHTS),
        (RETURN, "return self.out_proj(merged), weights.detach()"),
        (WEIGHTS, WEIGHTS + "\n        hard = weights == weights.amax(-1, keepdim=True)"
                  "\n        weights = hard.to(weights) - weights.detach() + weights"),
    ],
)  # fmt: skip
def test_designs_that_learn(edit: tuple[str, str], measured: Measure, known: Known) -> None:
    found = known(measured(edit).facts.learning)
    assert (found.detached, found.dead) == ((), ())


ADAPTER = """\
class Adapter(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.base = nn.Linear(d, d).requires_grad_(False)
        self.down, self.up = nn.Linear(d, 2, bias=False), nn.Linear(2, d, bias=False)
        nn.init.zeros_(self.up.weight)
        EXTRA

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


"""


def adapted(extra: str, text: str) -> str:
    frozen = "self.k_proj.requires_grad_(False)\n        self.out_proj.requires_grad_(False)"
    text = text.replace(OUT, f"{OUT}\n        {frozen}")
    for name in ("q_proj", "v_proj"):
        text = text.replace(
            f"self.{name} = nn.Linear(d_model, d_model)", f"self.{name} = Adapter(d_model)"
        )
    return ADAPTER.replace("EXTRA", extra) + text


def test_adapters_beside_frozen_maps(measured: Measure, known: Known) -> None:
    from tests.facts.conftest import PLAIN

    found = known(measured(text=adapted("pass", PLAIN)).facts.learning)
    assert (found.detached, found.dead) == ((), ())
    both = measured(text=adapted("nn.init.zeros_(self.down.weight)", PLAIN))
    names = [dead.name for dead in known(both.facts.learning).dead]
    assert names == ["q_proj.up.weight", "v_proj.up.weight"]


@pytest.mark.parametrize(
    ("lines", "together", "name"),
    [
        (("nn.init.zeros_(self.q_proj.weight)", "nn.init.zeros_(self.k_proj.weight)",
          "nn.init.zeros_(self.q_proj.bias)", "nn.init.zeros_(self.k_proj.bias)"),
         ("q", "k"), "q_proj.weight"),
        (("nn.init.zeros_(self.v_proj.weight)", "nn.init.zeros_(self.out_proj.weight)",
          "nn.init.zeros_(self.v_proj.bias)"), ("v", "o"), "v_proj.weight"),
    ],
)  # fmt: skip
def test_a_pair_that_begins_at_zero(
    lines: tuple[str, ...], together: tuple[str, ...], name: str, measured: Measure, known: Known
) -> None:
    case = measured(built(*lines))
    (found,) = known(case.facts.learning).dead
    assert (found.together, found.name, found.value, found.gradient) == (together, name, 0.0, 0.0)
    assert case.marked(found.span) == lines[0]


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj", "out_proj"])
def test_one_of_a_pair_learns_by_the_other(name: str, measured: Measure, known: Known) -> None:
    case = measured(built(f"nn.init.zeros_(self.{name}.weight)"))
    assert known(case.facts.learning).dead == ()


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj", "out_proj"])
def test_a_weight_of_one_other_number(name: str, measured: Measure, known: Known) -> None:
    case = measured(built(f"nn.init.constant_(self.{name}.weight, 0.25)"))
    (found,) = known(case.facts.learning).dead
    assert (found.name, found.value) == (f"{name}.weight", 0.25)
    assert case.marked(found.span) == f"nn.init.constant_(self.{name}.weight, 0.25)"


def test_calls_that_nothing_is_learned_from(measured: Measure, why: Why) -> None:
    case = measured((RETURN, RETURN + ".detach()"))
    assert why(case.facts.learning) == ("NotApplicable", "no output asks for a gradient")
    case = measured((RETURN, f"if self.training: raise KeyError('labels')\n        {RETURN}"))
    assert why(case.facts.learning) == (
        "Unknown",
        "the call fails in training mode: KeyError: 'labels'",
    )
