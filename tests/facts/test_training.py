"""The dropout that acts in training mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from mha_lint.model.numeric_facts import RateFault

if TYPE_CHECKING:
    from tests.facts.conftest import Measure

Known = Callable[[Any], Any]
Why = Callable[[Any], tuple[str, str]]

TEXT = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads, ARGS):
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        INIT

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        w = torch.softmax(q @ k.mT / q.size(-1) ** 0.5, -1)
        DROP
        y = self.out((w @ v).transpose(1, 2).flatten(2))
        return LAST
"""


def drop(
    measured: Measure,
    drop: str,
    *,
    args: str = "dropout=0.1",
    init: str = "self.p = dropout",
    last: str = "y",
) -> Any:
    text = TEXT.replace("ARGS", args).replace("INIT", init).replace("DROP", drop)
    return measured(text=text.replace("LAST", last))


@pytest.mark.parametrize(
    ("init", "act"),
    [
        ("self.drop = nn.Dropout(dropout)", "w = self.drop(w)"),
        ("self.p = dropout", "w = F.dropout(w, self.p, self.training)"),
        ("self.p = dropout", "w = F.dropout(w, self.p, self.training, inplace=True)"),
        ("self.drop = nn.Dropout2d(dropout)", "w = self.drop(w)"),
        ("self.p = dropout", "if self.training: w = w * (torch.rand_like(w) > self.p)"),
        ("self.drop = nn.Dropout(dropout / 2)", "w = self.drop(w)"),
    ],
)
def test_what_follows_the_argument(init: str, act: str, measured: Measure, known: Known) -> None:
    assert known(drop(measured, act, init=init).facts.training_dropout) == ()


def test_one_rate_for_the_output_alone(measured: Measure, known: Known) -> None:
    case = drop(measured, "pass", init="self.drop = nn.Dropout(dropout)", last="self.drop(y)")
    assert known(case.facts.training_dropout) == ()


@pytest.mark.parametrize(
    "act",
    ["pass", "w = F.dropout(w, self.p, training=False)", "w = F.dropout(w, 0.0, self.training)"],
)
def test_a_rate_that_acts_nowhere(act: str, measured: Measure, known: Known) -> None:
    case = drop(measured, act)
    (found,) = known(case.facts.training_dropout)
    assert (found.fault, found.argument, found.configured) == (RateFault.NEVER, "dropout", 0.1)
    assert (found.acting, found.named) == (None, False)
    assert case.marked(found.span) == "torch.softmax(q @ k.mT / q.size(-1) ** 0.5, -1)"
    assert case.marked(found.kept_at) == "self.p = dropout"


def test_a_layer_that_is_never_called_is_told_as_such(measured: Measure, known: Known) -> None:
    case = drop(measured, "pass", init="self.drop = nn.Dropout(dropout)")
    assert known(case.facts.training_dropout) == ()
    assert [name for name, _ in known(case.facts.unused_modules)] == ["drop"]


def test_a_rate_for_attention_that_acts_nowhere(measured: Measure, known: Known) -> None:
    both = {"args": "attn_drop=0.1, proj_drop=0.1", "last": "self.proj_drop(y)",
            "init": "self.attn_drop, self.proj_drop = attn_drop, nn.Dropout(proj_drop)"}  # fmt: skip
    (found,) = known(drop(measured, "pass", **both).facts.training_dropout)
    assert (found.fault, found.argument, found.named) == (RateFault.NEVER, "attn_drop", True)
    other = {k: v.replace("attn_drop", "drop_a") for k, v in both.items()}
    assert known(drop(measured, "pass", **other).facts.training_dropout) == ()


@pytest.mark.parametrize(
    ("init", "act", "rate", "at"),
    [
        ("self.p = dropout", "w = F.dropout(w, training=self.training)", 0.5,
         "F.dropout(w, training=self.training)"),
        ("self.drop = nn.Dropout(0.3)", "w = self.drop(w)", 0.3, "self.drop = nn.Dropout(0.3)"),
    ],
)  # fmt: skip
def test_a_rate_of_its_own(
    init: str, act: str, rate: float, at: str, measured: Measure, known: Known
) -> None:
    case = drop(measured, act, init=init)
    (found,) = known(case.facts.training_dropout)
    assert (found.fault, found.acting) == (RateFault.FIXED, rate)
    assert case.marked(found.span) == at


def test_what_is_kept_and_what_is_dropped(measured: Measure, known: Known) -> None:
    case = drop(measured, "w = self.drop(w)", init="self.drop = nn.Dropout(1 - dropout)")
    (found,) = known(case.facts.training_dropout)
    assert (found.fault, found.tried, found.acting) == (RateFault.KEPT, 0.11, pytest.approx(0.89))
    assert case.marked(found.span) == "self.drop = nn.Dropout(1 - dropout)"
    args = "keep_prob=0.9"
    case = drop(measured, "w = self.drop(w)", args=args, init="self.drop = nn.Dropout(keep_prob)")
    (found,) = known(case.facts.training_dropout)
    assert (found.fault, found.acting) == (RateFault.KEPT, 0.11)
    right = "self.drop = nn.Dropout(1 - keep_prob)"
    case = drop(measured, "w = self.drop(w)", args=args, init=right)
    assert known(case.facts.training_dropout) == ()
    args, wrong = "quote=0.2", "self.drop = nn.Dropout(1 - quote)"  # no word that is known
    case = drop(measured, "w = self.drop(w)", args=args, init=wrong)
    (found,) = known(case.facts.training_dropout)
    assert (found.fault, found.argument, found.configured) == (RateFault.KEPT, "quote", 0.2)
    assert (found.tried, found.acting) == (0.11, pytest.approx(0.89))
    case = drop(measured, "w = self.drop(w)", args=args, init="self.drop = nn.Dropout(quote)")
    assert known(case.facts.training_dropout) == ()
    case = drop(measured, "w = self.drop(w)", args="quote=0.8", init=wrong)
    assert known(case.facts.training_dropout) == ()


def test_the_rate_of_another_argument(measured: Measure, known: Known) -> None:
    case = drop(
        measured, "w = self.a(w)", args="attn_drop=0.1, proj_drop=0.1",
        init="self.a, self.b = nn.Dropout(proj_drop), nn.Dropout(proj_drop)", last="self.b(y)",
    )  # fmt: skip
    (found,) = known(case.facts.training_dropout)
    assert (found.fault, found.argument, found.other) == (RateFault.OTHER, "attn_drop", "proj_drop")
    assert found.named
    swapped = drop(
        measured, "w = self.a(w)", args="attn_drop=0.1, proj_drop=0.2",
        init="self.a, self.b = nn.Dropout(proj_drop), nn.Dropout(attn_drop)", last="self.b(y)",
    )  # fmt: skip
    (found,) = known(swapped.facts.training_dropout)
    assert (found.fault, found.argument, found.other) == (RateFault.OTHER, "attn_drop", "proj_drop")


def test_weights_that_are_dropped_twice(measured: Measure, known: Known) -> None:
    case = drop(
        measured, "w = self.drop(w)\n        w = F.dropout(w, self.drop.p, self.training)",
        init="self.drop = nn.Dropout(dropout)",
    )  # fmt: skip
    (found,) = known(case.facts.training_dropout)
    assert (found.fault, found.configured) == (RateFault.TWICE, 0.1)
    assert found.acting == pytest.approx(0.19)
    assert case.marked(found.span) == "F.dropout(w, self.drop.p, self.training)"
    assert case.marked(found.kept_at) == "self.drop(w)"


def test_layers_one_after_the_other_drop_once_each(measured: Measure, known: Known) -> None:
    text = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d_model, num_heads, 32, batch_first=True) for _ in range(2)
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
"""
    assert known(measured(text=text).facts.training_dropout) == ()


def test_a_layer_of_torch_is_told_where_it_is_made(measured: Measure, known: Known) -> None:
    text = """\
class MHA(nn.Module):
    def __init__(self, d_model, num_heads, attn_dropout=0.1):
        super().__init__()
        self.inner = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x)[0]
"""
    case = measured(text=text)
    (found,) = known(case.facts.training_dropout)
    assert found.fault is RateFault.NEVER
    assert found.span.line == case.line("nn.MultiheadAttention(")


def test_what_drops_in_eval_mode_is_another_fault(measured: Measure, known: Known) -> None:
    case = drop(measured, "w = F.dropout(w, 0.3)")
    assert known(case.facts.training_dropout) == ()
    assert any(use.active_in_eval for use in known(case.facts.dropouts))


def test_nothing_to_ask(measured: Measure, why: Why) -> None:
    assert why(measured().facts.training_dropout) == ("NotApplicable", "no dropout is configured")
    case = drop(measured, "if self.training: raise KeyError('targets')\n        pass")
    kind, text = why(case.facts.training_dropout)
    assert kind == "Unknown" and text.startswith(
        "the module could not be recorded in training mode"
    )


@pytest.mark.parametrize(
    "act",
    [
        "if self.training and torch.rand(1).item() < self.attn_drop: return x",
        "if self.training and self.attn_drop > torch.rand(1): return x",
    ],
)
def test_a_rate_at_which_code_leaves_a_part_out(act: str, measured: Measure, known: Known) -> None:
    rates = {"args": "attn_drop=0.1, out_drop=0.2", "last": "self.drop(y)"}
    init = "self.attn_drop, self.drop = attn_drop, nn.Dropout(out_drop)"
    case = drop(measured, act, init=init, **rates)
    assert known(case.facts.training_dropout) == ()
    (found,) = known(drop(measured, "pass", init=init, **rates).facts.training_dropout)
    assert (found.fault, found.argument) == (RateFault.NEVER, "attn_drop")
