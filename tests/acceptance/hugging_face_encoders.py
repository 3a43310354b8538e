"""Factories for whole text encoders of the transformers package, which make their masks themselves.

mha-lint loads this file by path, as it does hugging_face.py. Samples are padded on the right.
"""

from __future__ import annotations

from typing import Any

import torch
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
    "hidden_size": 48,
    "num_attention_heads": 3,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}


def _model(family: str, name: str, implementation: str, **settings: Any) -> nn.Module:
    config = configured(family, f"{name}Config", implementation, **settings)
    return built(family, f"{name}Model", config)


def bert_model(implementation: str = "eager") -> nn.Module:
    """Return a BERT of one layer."""
    return _model("bert", "Bert", implementation, **SIZES)


def bert_decoder(implementation: str = "eager") -> nn.Module:
    """Return a BERT that decodes and attends to an encoder's states as well."""
    settings = {"is_decoder": True, "add_cross_attention": True}
    return _model("bert", "Bert", implementation, **SIZES, **settings)


def distilbert(implementation: str = "eager") -> nn.Module:
    """Return a DistilBERT of one layer."""
    sizes = {"vocab_size": 40, "dim": 48, "n_heads": 3, "n_layers": 1, "hidden_dim": 64}
    return _model("distilbert", "DistilBert", implementation, **sizes)


def albert(implementation: str = "eager") -> nn.Module:
    """Return an ALBERT: one layer's weights, used twice."""
    settings = SIZES | {"embedding_size": 24, "num_hidden_layers": 2}
    return _model("albert", "Albert", implementation, **settings)


def mobilebert(implementation: str = "eager") -> nn.Module:
    """Return a MobileBERT: queries and keys from a bottleneck, values from the full width."""
    widths = {"intra_bottleneck_size": 24, "embedding_size": 24}
    return _model("mobilebert", "MobileBert", implementation, **SIZES, **widths)


def roformer_values(implementation: str = "eager") -> nn.Module:
    """Return a RoFormer that rotates its values too, as its config can ask."""
    settings = {"embedding_size": 48, "rotary_value": True}
    return _model("roformer", "RoFormer", implementation, **SIZES, **settings)


def mpnet(implementation: str = "eager") -> nn.Module:
    """Return an MPNet: a relative bias in buckets."""
    return _model("mpnet", "MPNet", implementation, **SIZES)


def xlnet(implementation: str = "eager") -> nn.Module:
    """Return an XLNet: relative positions by a shift, time first."""
    sizes = {"vocab_size": 40, "d_model": 48, "n_head": 3, "n_layer": 1, "d_inner": 64}
    return _model("xlnet", "XLNet", implementation, **sizes, d_head=16)


def longformer(implementation: str = "eager") -> nn.Module:
    """Return a Longformer: overlapping chunks around each position."""
    return _model("longformer", "Longformer", implementation, **SIZES, attention_window=[4])


def deberta(implementation: str = "eager") -> nn.Module:
    """Return a DeBERTa whose heads are mixed before and behind the softmax (talking heads)."""
    positions = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
    settings = positions | {"talking_head": True, "type_vocab_size": 0}
    return _model("deberta", "Deberta", implementation, **SIZES, **settings)


def modernbert(implementation: str = "eager") -> nn.Module:
    """Return a ModernBERT: a layer over all positions, one with a window to both sides."""
    kinds = {"layer_types": ["full_attention", "sliding_attention"], "local_attention": 4}
    special = {"cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
    settings = SIZES | {"num_hidden_layers": 2} | kinds | special
    return _model("modernbert", "ModernBert", implementation, **settings)


def funnel(implementation: str = "eager") -> nn.Module:
    """Return a Funnel: pooled queries ask unpooled keys, relative positions by a shift."""
    sizes = {"vocab_size": 40, "d_model": 48, "n_head": 3, "d_head": 16, "d_inner": 64}
    blocks = {"block_sizes": [1, 1], "num_decoder_layers": 1}
    return _model("funnel", "Funnel", implementation, **sizes, **blocks)


def xlm(implementation: str = "eager") -> nn.Module:
    """Return an XLM encoder, which fills hidden scores with the smallest number."""
    sizes = {"vocab_size": 40, "emb_dim": 48, "n_heads": 3, "n_layers": 1}
    return _model("xlm", "XLM", implementation, **sizes, max_position_embeddings=32)


def squeezebert(implementation: str = "eager") -> nn.Module:
    """Return a SqueezeBERT: grouped convolutions as projections, channels first."""
    groups = {"q_groups": 2, "k_groups": 2, "v_groups": 2, "embedding_size": 48}
    inner = {"post_attention_groups": 1, "intermediate_groups": 2, "output_groups": 2}
    return _model("squeezebert", "SqueezeBert", implementation, **SIZES, **groups, **inner)


def convbert(implementation: str = "eager") -> nn.Module:
    """Return a ConvBERT: half of the heads attend, the others convolve."""
    settings = SIZES | {"num_attention_heads": 4, "embedding_size": 24, "conv_kernel_size": 3}
    return _model("convbert", "ConvBert", implementation, **settings)


def luke(implementation: str = "eager") -> nn.Module:
    """Return a LUKE: words and entities ask each other through projections of their own."""
    sizes = {"entity_vocab_size": 20, "entity_emb_size": 24, "type_vocab_size": 2}
    return _model("luke", "Luke", implementation, **SIZES, **sizes)


def reformer(implementation: str = "eager") -> nn.Module:
    """Return a Reformer's local attention: chunks, scaled keys that are not the queries."""
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "attention_head_size": 16}
    chunks = {"local_attn_chunk_length": 4, "attn_layers": ["local"], "is_decoder": True}
    positions = {"axial_pos_embds": False, "max_position_embeddings": 32, "vocab_size": 40}
    return _model("reformer", "Reformer", implementation, **sizes, **chunks, **positions)


def perceiver(implementation: str = "eager") -> nn.Module:
    """Return a Perceiver: latents ask the inputs, then each other."""
    sizes = {"num_latents": 5, "d_latents": 48, "d_model": 36, "num_self_attends_per_block": 1}
    heads = {"num_self_attention_heads": 3, "num_cross_attention_heads": 3}
    return _model("perceiver", "Perceiver", implementation, **sizes, **heads)


WORDS = "tokens(3, 7), attention_mask=padded(3, 7)"
CHUNKS = "tokens(3, 8), attention_mask=padded(3, 8)"


def entities() -> dict[str, torch.Tensor]:
    """Return two entities for each of three texts, each at one or two words."""
    places = torch.tensor([[1, 2, -1], [4, -1, -1]]).expand(3, 2, 3)
    return {
        "entity_ids": torch.randint(1, 20, (3, 2)),
        "entity_attention_mask": torch.ones(3, 2, dtype=torch.long),
        "entity_position_ids": places,
    }


CASES = (
    Case(
        "bert_model",
        WORDS,
    ),
    Case(
        "bert_decoder",
        f"{WORDS}, encoder_hidden_states=torch.randn(3, 5, 48)",
        SDPA,
    ),
    Case("distilbert", WORDS, EAGER),
    Case("albert", WORDS, SDPA),
    Case("mobilebert", WORDS, EAGER),
    # The values are rotated, and the result is not rotated back: relative positions stay relative.
    Case("roformer_values", WORDS, EAGER, ("MHA503",)),
    Case("mpnet", WORDS, EAGER),
    Case("xlnet", WORDS, EAGER),
    Case("longformer", WORDS, EAGER),
    Case("deberta", WORDS, EAGER),
    Case("modernbert", WORDS, SDPA),
    Case("funnel", WORDS, EAGER),
    Case("xlm", WORDS, EAGER),
    Case("squeezebert", WORDS, EAGER),
    Case("convbert", WORDS, EAGER),
    Case("luke", f"{WORDS}, **entities()", EAGER),
    Case("reformer", CHUNKS, EAGER),
    Case("perceiver", "torch.randn(3, 7, 36)", EAGER),
)
