"""Idle inputs and layers, dropouts, and widths that the head count does not divide."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.facts import DropoutUse, Truncation, UnusedInput
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

INIT = "self.h = num_heads"
FLOOR = "self.d_k = d_model // num_heads"
SOFTMAX = "scores.softmax(dim=-1)"


# --- dropout -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        ((SOFTMAX, "F.dropout(scores, 0.25, {on}).softmax(dim=-1)"), "scores"),
        ((SOFTMAX, "F.dropout(scores.softmax(dim=-1), 0.25, {on})"), "weights"),
        (
            ("return self.out_proj(merged)", "return F.dropout(self.out_proj(merged), 0.25, {on})"),
            "output",
        ),
    ],
)
@pytest.mark.parametrize("active", [True, False])
def test_places_of_dropout(
    edit: tuple[str, str], place: str, active: bool, measured: Measure, known: Known
) -> None:
    old, new = edit
    case = measured((old, new.format(on="True" if active else "self.training")))
    (found,) = known(case.facts.dropouts)
    assert found == DropoutUse(place, 0.25, active, found.span)
    assert found.span.line == case.line("F.dropout(")
    assert known(case.facts.deterministic) is not active
    at_site = known(case.site.dropouts)
    assert at_site == (() if place == "output" else (found,))


def test_a_dropout_layer(measured: Measure, known: Known) -> None:
    case = measured(
        (INIT, INIT + "\n        self.drop = nn.Dropout(0.3)"),
        (SOFTMAX, "self.drop(scores.softmax(dim=-1))"),
    )
    (found,) = known(case.site.dropouts)
    assert (found.place, found.rate, found.active_in_eval) == ("weights", 0.3, False)
    assert case.marked(found.span) == "self.drop(scores.softmax(dim=-1))"
    assert known(case.facts.deterministic) is True


def test_the_dropout_argument_of_sdpa(measured: Measure, known: Known) -> None:
    text = SPELLINGS["sdpa"].text.replace("(q, k, v)\n", "(q, k, v, dropout_p=0.1)\n")
    case = measured(text=text)
    (found,) = known(case.site.dropouts)
    assert (found.place, found.rate, found.active_in_eval) == ("weights", 0.1, True)
    assert known(case.facts.deterministic) is False


def test_a_function_has_no_eval_mode(measured: Measure, why: Why) -> None:
    text = """\
def attend(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(q.size(-1)), dim=-1) @ v
"""
    call = "torch.randn(2, 4, 5, 6), torch.randn(2, 4, 7, 6), torch.randn(2, 4, 7, 6)"
    case = measured(text=text, build="attend", call=call)
    assert why(case.facts.dropouts) == ("NotApplicable", "the module does not know eval mode")
    assert why(case.facts.unused_modules) == ("NotApplicable", "a function declares no layers")


def test_noise_is_not_deterministic(measured: Measure, known: Known) -> None:
    case = measured((SOFTMAX, "(scores + torch.randn_like(scores)).softmax(dim=-1)"))
    assert known(case.facts.deterministic) is False
    assert known(measured().facts.deterministic) is True


# --- inputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "found"),
    [
        ("memory", "torch.randn(2, 7, 24)", UnusedInput("memory", (2, 7, 24), True)),
        (
            "encoder_output",
            "torch.randn(2, 7, 24)",
            UnusedInput("encoder_output", (2, 7, 24), True),
        ),
        ("mask", "torch.ones(2, 1, 1, 5).bool()", UnusedInput("mask", (2, 1, 1, 5), False)),
        ("bias", "torch.randn(4, 5, 5)", UnusedInput("bias", (4, 5, 5), False)),
    ],
)
def test_an_argument_that_nothing_reads(
    name: str, given: str, found: UnusedInput, measured: Measure, known: Known
) -> None:
    case = measured(
        ("def forward(self, x):", f"def forward(self, x, {name}):"),
        call=f"torch.randn(2, 5, 24), {given}",
    )
    assert known(case.facts.unused_inputs) == (found,)


def test_an_argument_whose_shape_alone_is_read(measured: Measure, known: Known) -> None:
    case = measured(
        ("def forward(self, x):", "def forward(self, x, memory):"),
        (
            "        scores = q @",
            "        q = q + torch.zeros(memory.size(1)).sum()\n        scores = q @",
        ),
        call="torch.randn(2, 5, 24), torch.randn(2, 7, 24)",
    )
    assert [u.name for u in known(case.facts.unused_inputs)] == ["memory"]


def test_arguments_that_are_read(measured: Measure, known: Known) -> None:
    case = measured(
        text=SPELLINGS["cross"].text,
        build="CrossAttention(24, 16, 4)",
        call="torch.randn(2, 5, 24), torch.randn(2, 7, 16)",
    )
    assert known(case.facts.unused_inputs) == ()


# --- layers --------------------------------------------------------------------------------------


def test_a_layer_that_forward_never_names(measured: Measure, known: Known) -> None:
    case = measured((INIT, INIT + "\n        self.spare = nn.Linear(d_model, d_model)"))
    ((name, span),) = known(case.facts.unused_modules)
    assert name == "spare"
    assert case.marked(span) == "self.spare = nn.Linear(d_model, d_model)"


def test_a_layer_whose_result_is_dropped(measured: Measure, known: Known) -> None:
    case = measured(
        (INIT, INIT + "\n        self.spare = nn.Linear(d_model, d_model)"),
        ("        scores = q @", "        spare = self.spare(x)\n        scores = q @"),
    )
    ((name, span),) = known(case.facts.unused_modules)
    assert name == "spare"
    assert case.marked(span) == "self.spare(x)"


def test_a_dropout_that_is_never_called(measured: Measure, known: Known) -> None:
    case = measured((INIT, INIT + "\n        self.drop = nn.Dropout(0.1)"))
    ((name, span),) = known(case.facts.unused_modules)
    assert name == "drop"
    assert case.marked(span) == "self.drop = nn.Dropout(0.1)"


@pytest.mark.parametrize(
    "edits",
    [
        ((INIT, INIT + "\n        self.drop = nn.Dropout(0.0)"),),
        (
            (INIT, INIT + "\n        self.spare = nn.Linear(d_model, d_model)"),
            ("        scores = q @", "        if T > 100:\n            x = self.spare(x)\n        scores = q @"),
        ),
        (
            (INIT, INIT + "\n        self.drop = nn.Dropout(0.1)"),
            (SOFTMAX, "self.drop(scores.softmax(dim=-1))"),
        ),
        (
            (INIT, INIT + "\n        self.extra_norm = nn.LayerNorm(d_model)"),
        ),
    ],
)  # fmt: skip
def test_layers_that_are_nobodys_business(
    edits: tuple[tuple[str, str], ...], measured: Measure, known: Known
) -> None:
    assert known(measured(*edits).facts.unused_modules) == ()


# --- truncation ----------------------------------------------------------------------------------


def test_a_floor_division_that_loses_channels(measured: Measure, known: Known) -> None:
    case = measured(
        ("self.q_proj = nn.Linear(d_model, d_model)", "inner = self.h * self.d_k\n        self.q_proj = nn.Linear(d_model, inner)"),
        ("self.k_proj = nn.Linear(d_model, d_model)", "self.k_proj = nn.Linear(d_model, inner)"),
        ("self.v_proj = nn.Linear(d_model, d_model)", "self.v_proj = nn.Linear(d_model, inner)"),
        ("self.out_proj = nn.Linear(d_model, d_model)", "self.out_proj = nn.Linear(inner, d_model)"),
        ("reshape(B, T, C)", "flatten(2)"),
        build="MHA(26, 4)",
        call="torch.randn(2, 5, 26)",
    )  # fmt: skip
    found = known(case.facts.truncation)
    assert found == Truncation(26, 4, 24, 2, (1, 2, 13, 26), "floor division", found.span)
    assert case.marked(found.span) == "d_model // num_heads"
    assert case.facts.truncation.evidence == (  # type: ignore[union-attr]
        "W_q maps 26 channels to 24 = 4 * (26 // 4)"
    )


def test_an_own_head_width_loses_nothing(measured: Measure, known: Known) -> None:
    case = measured(
        ("def __init__(self, d_model, num_heads):", "def __init__(self, d_model, num_heads, head_dim):"),
        (FLOOR, "self.d_k = head_dim"),
        ("self.q_proj = nn.Linear(d_model, d_model)", "inner = self.h * self.d_k\n        self.q_proj = nn.Linear(d_model, inner)"),
        ("self.k_proj = nn.Linear(d_model, d_model)", "self.k_proj = nn.Linear(d_model, inner)"),
        ("self.v_proj = nn.Linear(d_model, d_model)", "self.v_proj = nn.Linear(d_model, inner)"),
        ("self.out_proj = nn.Linear(d_model, d_model)", "self.out_proj = nn.Linear(inner, d_model)"),
        ("reshape(B, T, C)", "flatten(2)"),
        build="MHA(26, 4, 6)",
        call="torch.randn(2, 5, 26)",
    )  # fmt: skip
    assert known(case.facts.truncation) is None


def test_chunks_of_unequal_width(measured: Measure, known: Known) -> None:
    text = """\
class Chunked(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        qs = torch.chunk(self.q_proj(x), self.h, dim=-1)
        ks = torch.chunk(self.k_proj(x), self.h, dim=-1)
        vs = torch.chunk(self.v_proj(x), self.h, dim=-1)
        out = [F.softmax(q @ k.mT / math.sqrt(q.size(-1)), -1) @ v for q, k, v in zip(qs, ks, vs)]
        return self.out_proj(torch.cat(out, -1))
"""
    case = measured(text=text, build="Chunked(26, 4)", call="torch.randn(2, 5, 26)")
    found = known(case.facts.truncation)
    assert (found.width, found.num_heads, found.remainder) == (26, 4, 2)
    assert (found.valid, found.how) == ((1, 2, 13, 26), "7, 7, 7, 5 channels wide")
    assert case.marked(found.span) == "torch.chunk(self.q_proj(x), self.h, dim=-1)"
    even = measured(text=text, build="Chunked(24, 4)", call="torch.randn(2, 5, 24)")
    assert known(even.facts.truncation) is None


def test_a_width_that_divides(measured: Measure, known: Known) -> None:
    assert known(measured().facts.truncation) is None
