"""The output projection: where it stands, what it mixes, and when none is due."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

RETURN = "return self.out_proj(merged)"
DECLARED = "        self.out_proj = nn.Linear(d_model, d_model)\n"


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_has_one(name: str, measured: Measure, known: Known) -> None:
    spelling = SPELLINGS[name]
    case = measured(text=spelling.text, build=spelling.build, call=spelling.call)
    found = known(case.site.output_projection)
    assert (found.present, found.mixes, found.name) == (True, True, spelling.names[3])
    assert (found.enclosing, found.declared, found.width) == (None, (), 24)
    place = "self.attention(" if name == "torch" else "self.out_"
    assert place in case.marked(found.span)


def test_none_at_all(measured: Measure, known: Known) -> None:
    case = measured((DECLARED, ""), (RETURN, "return merged"))
    found = known(case.site.output_projection)
    assert (found.present, found.mixes, found.declared, found.name) == (False, False, (), "")
    assert case.marked(found.span) == "return merged"
    assert case.site.output_projection.evidence == (  # type: ignore[union-attr]
        "between the context and the return no weight is applied"
    )
    assert "output" not in case.site.info.spans


def test_declared_and_never_called(measured: Measure, known: Known) -> None:
    found = known(measured((RETURN, "return merged")).site.output_projection)
    assert (found.present, found.declared) == (False, ("out_proj.weight",))


def test_computed_and_dropped(measured: Measure, known: Known) -> None:
    case = measured((RETURN, "self.out_proj(merged)\n        return merged"))
    found = known(case.site.output_projection)
    assert (found.present, found.declared) == (False, ("out_proj.weight",))
    assert case.marked(found.span) == "return merged"


def test_a_residual_before_any_projection(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.h = num_heads", "self.h = num_heads\n        self.up = nn.Linear(d_model, d_model)"),
        (DECLARED, ""),
        (RETURN, "return self.up(x + merged)"),
    )
    found = known(case.site.output_projection)
    assert not found.present
    assert case.site.output_projection.evidence == (  # type: ignore[union-attr]
        "between the context and the residual no weight is applied"
    )


def test_a_residual_behind_the_projection(measured: Measure, known: Known) -> None:
    case = measured((RETURN, "return x + self.out_proj(merged)"))
    found = known(case.site.output_projection)
    assert (found.present, found.name) == (True, "out_proj.weight")


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("torch.einsum('btc,oc->bto', merged, self.out_proj.weight)", "out_proj.weight"),
        ("merged @ self.out_proj.weight.T + self.out_proj.bias", "out_proj.weight"),
        ("F.linear(F.dropout(merged, 0.1, self.training), self.out_proj.weight)", "out_proj.weight"),
        ("torch.einsum('bhtd,ohd->bto', context, self.out_proj.weight.view(C, self.h, -1))",
         "out_proj.weight"),
    ],
)  # fmt: skip
def test_other_ways_to_apply_it(spelled: str, name: str, measured: Measure, known: Known) -> None:
    found = known(measured((RETURN, f"return {spelled}")).site.output_projection)
    assert (found.present, found.mixes, found.name) == (True, True, name)


def test_a_map_of_each_head_alone_mixes_nothing(measured: Measure, known: Known) -> None:
    case = measured(
        (DECLARED, "        self.out_proj = nn.Linear(self.d_k, self.d_k)\n"),
        ("merged = context.transpose(1, 2).reshape(B, T, C)",
         "merged = self.out_proj(context).transpose(1, 2).reshape(B, T, C)"),
        (RETURN, "return merged"),
    )  # fmt: skip
    assert not known(case.site.output_projection).present


def test_maps_of_each_head_that_are_added_up_mix(measured: Measure, known: Known) -> None:
    case = measured(
        (DECLARED, "        self.out_proj = nn.ModuleList(nn.Linear(self.d_k, d_model) for _ in range(num_heads))\n"),
        ("merged = context.transpose(1, 2).reshape(B, T, C)",
         "merged = sum(w(c) for w, c in zip(self.out_proj, context.unbind(1)))"),
        (RETURN, "return merged"),
    )  # fmt: skip
    found = known(case.site.output_projection)
    assert (found.present, found.mixes, found.name) == (True, True, "out_proj.0.weight")


def test_one_head_needs_none(measured: Measure, why: Why) -> None:
    case = measured(
        (DECLARED, ""), (RETURN, "return merged"), build="MHA(24, 1)", call="torch.randn(2, 5, 24)"
    )
    assert why(case.site.output_projection) == (
        "NotApplicable",
        "one head needs no map that mixes heads",
    )


def test_a_function_leaves_it_to_its_caller(measured: Measure, why: Why) -> None:
    text = """\
def attend(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1) @ v
"""
    call = "torch.randn(2, 4, 5, 6), torch.randn(2, 4, 7, 6), torch.randn(2, 4, 7, 6)"
    case = measured(text=text, build="attend", call=call)
    assert why(case.site.output_projection) == (
        "NotApplicable",
        "a function without weights leaves the projections to its caller",
    )


READY = """\
class Ready(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, qkv):
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in qkv)
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2) * self.gain
"""


def test_what_comes_ready_made_is_projected_by_the_caller(measured: Measure, why: Why) -> None:
    case = measured(text=READY, build="Ready(24)", call="torch.randn(3, 2, 5, 24)")
    assert why(case.site.output_projection) == (
        "NotApplicable",
        "q, k and v come ready-made: their projections, and W_O, are the caller's",
    )


ASKED = (
    "q = self.q_proj(x).view(B, T, self.h, self.d_k).transpose(1, 2)",
    "q = self.q_proj({}).view(B, 1, self.h, self.d_k).transpose(1, 2)",
)
ONE = ("reshape(B, T, C)", "reshape(B, 1, C)")


@pytest.mark.parametrize("query", ["x.mean(1, True)", "x.amax(1)", "x.sum(1) / T"])
def test_one_query_made_of_all_positions_is_pooling(
    query: str, measured: Measure, why: Why
) -> None:
    asked = (ASKED[0], ASKED[1].format(query))
    case = measured(asked, ONE, (DECLARED, ""), (RETURN, "return merged"))
    assert why(case.site.output_projection) == (
        "NotApplicable",
        "one query made of all positions asks them: pooling needs no map",
    )


@pytest.mark.parametrize("query", ["x[:, :1]", "x[:, -1]"])
def test_one_position_that_asks_is_none(query: str, measured: Measure, known: Known) -> None:
    asked = (ASKED[0], ASKED[1].format(query))
    case = measured(asked, ONE, (DECLARED, ""), (RETURN, "return merged"))
    assert not known(case.site.output_projection).present


def test_pooling_with_a_map_has_it(measured: Measure, known: Known) -> None:
    case = measured((ASKED[0], ASKED[1].format("x.mean(1)")), ONE)
    assert known(case.site.output_projection).name == "out_proj.weight"
