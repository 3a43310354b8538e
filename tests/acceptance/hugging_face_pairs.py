"""Factories for whole encoder-decoders of the transformers package.

mha-lint loads this file by path, as it does hugging_face.py. The source is padded on the right.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.acceptance.cases import (
    EAGER,
    SDPA,
    Case,
    built,
    configured,
    padded,  # noqa: F401 - named in calls
    tokens,  # noqa: F401 - named in calls
)

SIZES = {
    "vocab_size": 40,
    "d_model": 48,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}
T5 = {"vocab_size": 40, "d_model": 48, "d_kv": 16, "num_heads": 3, "num_layers": 1, "d_ff": 64}


def _model(family: str, name: str, implementation: str, **settings: Any) -> nn.Module:
    config = configured(family, f"{name}Config", implementation, **settings)
    return built(family, f"{name}Model", config)


def t5_model(implementation: str = "eager") -> nn.Module:
    """Return a T5: no scale, since its initialisation makes up for it; a relative bias."""
    return _model("t5", "T5", implementation, **T5)


def longt5_local(implementation: str = "eager") -> nn.Module:
    """Return a LongT5 whose encoder attends to the block before, its own and the next."""
    settings = T5 | {"encoder_attention_type": "local", "local_radius": 2}
    return _model("longt5", "LongT5", implementation, **settings)


def bart_model(implementation: str = "eager") -> nn.Module:
    """Return a BART."""
    return _model("bart", "Bart", implementation, **SIZES)


def pegasus_x(implementation: str = "eager") -> nn.Module:
    """Return a Pegasus-X: blocks that meet through global tokens."""
    settings = {"num_global_tokens": 2, "block_size": 4}
    return _model("pegasus_x", "PegasusX", implementation, **SIZES, **settings)


def prophetnet(implementation: str = "eager") -> nn.Module:
    """Return a ProphetNet: a decoder with two streams that look further ahead each."""
    sizes = {"vocab_size": 40, "hidden_size": 48, "ngram": 2, "max_position_embeddings": 32}
    encoder = {"num_encoder_layers": 1, "num_encoder_attention_heads": 3, "encoder_ffn_dim": 64}
    decoder = {"num_decoder_layers": 1, "num_decoder_attention_heads": 3, "decoder_ffn_dim": 64}
    settings = sizes | encoder | decoder
    return _model("prophetnet", "ProphetNet", implementation, **settings)


def t5gemma(implementation: str = "eager") -> nn.Module:
    """Return a T5Gemma: soft-capped scores, windows, a decoder that asks the encoder."""
    part = {"vocab_size": 40, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 1}
    part |= {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8}
    part |= {"sliding_window": 3, "query_pre_attn_scalar": 8}
    return _model("t5gemma", "T5Gemma", implementation, encoder=part, decoder=dict(part))


PAIR = "tokens(3, 7), attention_mask=padded(3, 7), decoder_input_ids=tokens(3, 5)"
BLOCKS = "tokens(3, 8), attention_mask=padded(3, 8), decoder_input_ids=tokens(3, 5)"

CASES = (
    Case("t5_model", PAIR, EAGER),
    Case("longt5_local", PAIR, EAGER),
    Case("bart_model", PAIR, SDPA),
    Case("pegasus_x", BLOCKS, EAGER),
    Case("prophetnet", PAIR, EAGER),
    Case("t5gemma", PAIR, EAGER),
)
