"""Who says that code is meant to be causal, and who cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.causal.intent import (
    AHEAD,
    ENCODED,
    LATENT,
    Meant,
    is_asked_to_see_all,
    meant_causal,
    takes_a_mask,
    texts,
)
from mha_lint.model.contract import Contract, ContractEntry
from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure

STATED = ContractEntry("causal", True, "stated")
DENIED = ContractEntry("causal", "no", "stated")
BOTH = ContractEntry("bidirectional", True, "class name Encoder")
NAMED = ContractEntry("causal", True, "class name GPT")
OUTER = (
    PLAIN.replace("class MHA", "class CausalMHA")
    + """

class Model(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = CausalMHA(d_model, num_heads)

    def forward(self, x):
        return self.attention(x)
"""
)


def meant(case: Case, *entries: ContractEntry) -> Meant | None:
    return meant_causal(case.subject, case.bench, case.bench.sites, Contract(entries))


def test_what_is_stated_and_what_is_named(measured: Measure) -> None:
    case = measured()
    assert meant(case, STATED) == Meant("it is expected to be", stated=True)
    assert meant(case, NAMED) == Meant("class name GPT")
    assert (
        meant(case)
        is meant(case, DENIED)
        is meant(case, DENIED, NAMED)
        is meant(case, BOTH)
        is None
    )


def test_the_class_that_holds_the_site(measured: Measure) -> None:
    case = measured(text=OUTER, build="Model(24, 4)")
    assert meant(case) == Meant("class name CausalMHA")
    off = OUTER.replace("self.h = num_heads", "self.h, self.causal = num_heads, False")
    assert meant(measured(text=off, build="Model(24, 4)")) is None


@pytest.mark.parametrize(
    ("argument", "takes"),
    [
        ("mask=None", True),
        ("attn_mask=None", True),
        ("key_padding_mask=None", False),
        ("lengths=None", False),
        ("y=None", False),
    ],
)
def test_a_mask_of_the_caller(measured: Measure, argument: str, takes: bool) -> None:
    case = measured(("forward(self, x)", f"forward(self, x, {argument})"))
    assert takes_a_mask(case.subject) is takes
    assert (meant(case, NAMED) is None) is takes
    assert meant(case, STATED) is not None


def test_all_sources_are_read(measured: Measure) -> None:
    case = measured(text=OUTER, build="Model(24, 4)")
    text = texts(case.subject, case.bench, case.bench.sites)
    assert "class Model" in text
    assert "class CausalMHA" in text


def test_words_of_designs() -> None:
    words = ("look_ahead=1", "right_context", "block_causal", "one of the future frames", "delay")
    assert all(AHEAD.search(t) for t in words)
    own = ("attention over blocks of layers", "future = triu(1)", "x.chunk(3)", "look_ahead_mask")
    assert not any(AHEAD.search(t) for t in own)
    assert all(LATENT.search(t) for t in ("class SeqVAE", "autoencoder", "log_var", "posterior"))
    assert LATENT.search("a private value") is None
    assert all(ENCODED.search(t) for t in ("encoder", "model.encoder.rnn", "encode", "style"))
    assert ENCODED.search("encoders_of_text") is None


FLAGGED = (
    OUTER.replace("CausalMHA", "Part")
    .replace("self.h = num_heads", "self.h, self.causal = num_heads, causal")
    .replace("(self, d_model, num_heads):", "(self, d_model, num_heads, causal=True):", 1)
)
TWO = FLAGGED.replace(
    "self.attention = Part(d_model, num_heads)",
    "self.attention = Part(d_model, num_heads)\n"
    "        self.other = Part(d_model, num_heads, causal=False)",
).replace("return self.attention(x)", "return self.other(self.attention(x))")


def test_the_flag_of_a_part(measured: Measure) -> None:
    assert meant(measured(text=FLAGGED, build="Model(24, 4)")) == Meant(
        "attribute causal=True of Part"
    )
    # One of two parts is off: the whole is not said to be causal.
    assert meant(measured(text=TWO, build="Model(24, 4)")) is None


def test_a_flag_that_is_switched_off_outright(measured: Measure) -> None:
    case = measured(text=TWO, build="Model(24, 4)")
    said = {
        str(s.context.meta["module"]): is_asked_to_see_all(case.bench, s) for s in case.bench.sites
    }
    assert said == {"attention": False, "other": True}
    default = TWO.replace("causal=True):", "causal=False):").replace(", causal=False)\n", ")\n")
    case = measured(text=default, build="Model(24, 4)")
    assert not any(is_asked_to_see_all(case.bench, s) for s in case.bench.sites)
