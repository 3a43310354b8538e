"""Idle inputs and layers, and dropouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.facts import DropoutUse, UnusedInput
from tests.facts.spellings import SPELLINGS

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

INIT = "self.h = num_heads"
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


ENCODED = """\
class Reader(nn.Module):
    def __init__(self, d_model, words):
        super().__init__()
        self.embed = nn.Embedding(words, d_model)
        self.encode = nn.Linear(d_model, d_model)
        self.attention = nn.MultiheadAttention(d_model, 4, batch_first=True)

    def forward(self, x, ids):
        memory = {made}
        return self.attention(x, x, x)[0]
"""


@pytest.mark.parametrize(
    ("made", "encoded"),
    [("self.encode(self.embed(ids))", True), ("self.embed(ids)", False), ("self.encode(x)", False)],
)
def test_states_that_are_made_of_an_input_and_dropped(
    made: str, encoded: bool, measured: Measure, known: Known
) -> None:
    call = "torch.randn(2, 5, 24), torch.randint(0, 9, (2, 7))"
    case = measured(text=ENCODED.format(made=made), build="Reader(24, 9)", call=call)
    assert known(case.facts.unused_inputs) == (UnusedInput("ids", (2, 7), encoded, encoded),)
