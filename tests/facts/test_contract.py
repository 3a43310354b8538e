"""What names, flags and docstrings say of what code is meant to be, and how strictly they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mha_lint.facts.contract import contract_of, docstring_of, said_by_name, words_of
from mha_lint.model.contract import ContractEntry
from tests.facts.conftest import PLAIN

if TYPE_CHECKING:
    from tests.facts.conftest import Case, Measure


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("CausalSelfAttention", ("causal", "self", "attention")),
        ("MiniGPT2", ("mini", "gpt")),
        ("nanoGPT", ("nano", "gpt")),
        ("GPTBlock", ("gpt", "block")),
        ("decoder_only_lm", ("decoder", "only", "lm")),
        ("Outer.ViT", ("vi", "t")),
    ],
)
def test_words_of_a_name(name: str, words: tuple[str, ...]) -> None:
    assert words_of(name) == words


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("CausalAttention", ["causal"]),
        ("GPT", ["causal"]),
        ("DecoderOnlyTransformer", ["causal"]),
        ("NonCausalAttention", ["bidirectional"]),
        ("NonAutoregressiveDecoder", []),
        ("Decoder", []),
        ("TransformerDecoderLayer", []),
        ("EncoderLayer", ["bidirectional"]),
        ("EncoderDecoder", []),
        ("CausalEncoder", ["causal"]),
        ("BertLayer", ["bidirectional"]),
        ("ViTBlock", ["bidirectional"]),
        ("CrossAttention", ["cross"]),
        ("CausalCrossAttention", ["causal", "cross"]),
        ("Attention", []),
    ],
)
def test_what_a_name_says(name: str, keys: list[str]) -> None:
    assert [e.key for e in said_by_name(name)] == keys
    assert all(e.value is True and e.source == f"class name {name}" for e in said_by_name(name))


def entries(case: Case) -> list[tuple[str, bool | str, str]]:
    return [(e.key, e.value, e.source) for e in case.facts.contract.entries]


FLAGGED = PLAIN.replace("num_heads):", "num_heads, causal={value}):")


@pytest.mark.parametrize("value", [True, False])
def test_a_flag_of_the_constructor(measured: Measure, value: bool) -> None:
    case = measured(text=FLAGGED.format(value=value))
    assert entries(case) == [("causal", value, f"argument causal={value}")]
    assert (case.facts.contract.entry("causal") is not None) is value


def test_a_flag_outweighs_the_name(measured: Measure) -> None:
    text = FLAGGED.format(value=False).replace("class MHA", "class CausalMHA")
    case = measured(text=text, build="CausalMHA(24, 4)")
    assert entries(case) == [("causal", False, "argument causal=False")]


def test_an_attribute(measured: Measure) -> None:
    case = measured(("self.h = num_heads", "self.h, self.is_causal = num_heads, True"))
    assert entries(case) == [("causal", True, "attribute is_causal=True")]


def test_a_default_of_the_call(measured: Measure) -> None:
    case = measured(("def forward(self, x):", "def forward(self, x, is_causal=True):"))
    assert entries(case) == [("causal", True, "argument is_causal=True")]


def documented(text: str) -> str:
    return PLAIN.replace("(nn.Module):\n", f'(nn.Module):\n    """{text}"""\n\n', 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A decoder-only transformer.", [("causal", True, 'docstring: "decoder-only"')]),
        ("Causal self-attention.", [("causal", True, 'docstring: "Causal self-attention"')]),
        ("Optional causal attention.", []),
        ("Not causal attention.", []),
        ("Causal attention if causal is set.", []),
        ("Bidirectional attention.", [("bidirectional", True, "docstring: bidirectional")]),
        ("Heads as GPT-NeoX lays them out.", []),
    ],
)
def test_a_docstring(
    measured: Measure, text: str, found: list[tuple[str, bool | str, str]]
) -> None:
    case = measured(text=documented(text))
    assert text in docstring_of(case.subject.module)
    assert entries(case) == found


def test_causes_are_no_positions(measured: Measure) -> None:
    text = documented("Front-door adjustment for confounders.").replace("MHA", "CausalMHA")
    assert entries(measured(text=text, build="CausalMHA(24, 4)")) == []


LANGUAGE_MODEL = (
    PLAIN
    + """

class LanguageModel(nn.Module):
    def __init__(self, size, d_model, num_heads):
        super().__init__()
        self.embed = nn.Embedding(size, d_model)
        self.attention = MHA(d_model, num_heads)
        self.head = nn.Linear(d_model, {out})

    def forward(self, ids):
        return self.head(self.attention(self.embed(ids)))
"""
)


@pytest.mark.parametrize(("out", "count"), [("size", 1), ("3", 0)])
def test_a_language_model_predicts_its_own_tokens(measured: Measure, out: str, count: int) -> None:
    case = measured(
        text=LANGUAGE_MODEL.format(out=out),
        build="LanguageModel(30, 24, 4)",
        call="torch.randint(0, 30, (2, 5))",
    )
    source = "class name LanguageModel, with a head over the tokens that it reads"
    assert entries(case) == [("causal", True, source)] * count


def test_a_masked_language_model_reads_both_sides(measured: Measure) -> None:
    text = LANGUAGE_MODEL.format(out="size").replace("LanguageModel", "MaskedLanguageModel")
    call = "torch.randint(0, 30, (2, 5))"
    assert entries(measured(text=text, build="MaskedLanguageModel(30, 24, 4)", call=call)) == []


def test_the_form_of_an_entry() -> None:
    assert said_by_name("gpt_step", "function name") == [
        ContractEntry("causal", True, "function name gpt_step")
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Query head i uses key/value head i % kv_heads.", True),
        ("Keys and values are tiled over the query heads.", True),
        ("Heads are shared round robin.", True),
        ("Tiled kernels are not used here; 10 % of the heads are dropped later.", False),
        ("Each key head serves its neighbours.", False),
    ],
)
def test_an_order_of_shared_heads_by_its_docstring(
    text: str, found: bool, measured: Measure
) -> None:
    case = measured(("    def __init__", f'    """{text}"""\n\n    def __init__'))
    said = case.facts.contract.entry("gqa")
    assert (said is not None and said.value == "tiled" and not said.stated) == found


COPIED = PLAIN.replace(
    "        self.h = num_heads\n", "        self.h = num_heads\n        self.is_causal = True\n"
)
EITHER = (
    ("forward(self, x)", "forward(self, x, encoder_hidden_states=None)"),
    ("        B, T, C = x.shape\n",
     "        B, T, C = x.shape\n        source = x if encoder_hidden_states is None else encoder_hidden_states\n"),
    ("self.k_proj(x).view(B, T,", "self.k_proj(source).view(B, -1,"),
    ("self.v_proj(x).view(B, T,", "self.v_proj(source).view(B, -1,"),
)  # fmt: skip


def test_a_flag_that_a_class_for_cross_attention_has_too_says_nothing(measured: Measure) -> None:
    alone, either = measured(text=COPIED), measured(*EITHER, text=COPIED)
    entry = ContractEntry("causal", True, "attribute is_causal=True")
    assert contract_of(alone.subject).entry("causal") == entry
    assert contract_of(either.subject).entry("causal") is None


def test_a_flag_that_the_constructor_takes_is_chosen(measured: Measure) -> None:
    chosen = (
        ("d_model, num_heads):", "d_model, num_heads, is_causal=True):"),
        ("self.is_causal = True", "self.is_causal = is_causal"),
    )
    entry = contract_of(measured(*EITHER, *chosen, text=COPIED).subject).entry("causal")
    assert entry is not None
    assert entry.value is True


def test_a_flag_that_is_off_for_every_use_still_says_so(measured: Measure) -> None:
    off = ("self.is_causal = True", "self.is_causal = False")
    entries = contract_of(measured(*EITHER, off, text=COPIED).subject).entries
    assert ContractEntry("causal", False, "attribute is_causal=False") in entries
