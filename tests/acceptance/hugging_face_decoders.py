"""Factories for whole decoders of the transformers package, which make their masks themselves.

mha-lint loads this file by path, as it does hugging_face.py. Samples are padded on the left, where
decoders are padded; a cache holds the positions before the tokens of the call.
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
    past,  # noqa: F401 - named in calls
    tokens,  # noqa: F401 - named in calls
)

SIZES = {
    "vocab_size": 40,
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "pad_token_id": 0,
}
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 8}
GPT = {"vocab_size": 40, "n_embd": 48, "n_head": 3, "n_layer": 1, "n_positions": 32}


def _model(family: str, name: str, implementation: str, **settings: Any) -> nn.Module:
    config = configured(family, f"{name}Config", implementation, **settings)
    return built(family, f"{name}Model", config)


def gpt2_model(implementation: str = "eager") -> nn.Module:
    """Return a GPT-2 of one layer."""
    return _model("gpt2", "GPT2", implementation, **GPT)


def gptj(implementation: str = "eager") -> nn.Module:
    """Return a GPT-J: half of each head is rotated, by neighbouring pairs."""
    return _model("gptj", "GPTJ", implementation, rotary_dim=8, **GPT)


def codegen(implementation: str = "eager") -> nn.Module:
    """Return a CodeGen: one fused projection in four parts, each (q, v, k)."""
    return _model("codegen", "CodeGen", implementation, rotary_dim=6, **GPT | {"n_head": 4})


def gpt_bigcode(implementation: str = "eager") -> nn.Module:
    """Return a GPT-BigCode: one key/value head for all."""
    return _model("gpt_bigcode", "GPTBigCode", implementation, **GPT)


def gpt_neox_model(implementation: str = "eager") -> nn.Module:
    """Return a GPT-NeoX: a quarter of each head is rotated."""
    return _model("gpt_neox", "GPTNeoX", implementation, **SIZES | {"num_attention_heads": 3})


def opt_model(implementation: str = "eager") -> nn.Module:
    """Return an OPT, whose positions are counted over the mask."""
    settings = SIZES | {"ffn_dim": 64, "word_embed_proj_dim": 48, "max_position_embeddings": 32}
    return _model("opt", "OPT", implementation, **settings)


def bloom_model(implementation: str = "eager") -> nn.Module:
    """Return a BLOOM, whose linear biases are counted over the mask."""
    sizes = {"vocab_size": 40, "hidden_size": 48, "n_head": 6, "n_layer": 1}
    return _model("bloom", "Bloom", implementation, **sizes)


def mpt_model(implementation: str = "eager") -> nn.Module:
    """Return an MPT: linear biases from the end of the sequence."""
    sizes = {"vocab_size": 40, "d_model": 48, "n_heads": 6, "n_layers": 1, "max_seq_len": 16}
    return _model("mpt", "Mpt", implementation, **sizes)


def falcon_alibi(implementation: str = "eager") -> nn.Module:
    """Return a Falcon with linear biases and one key/value head."""
    settings = {"alibi": True, "multi_query": True, "new_decoder_architecture": False}
    return _model("falcon", "Falcon", implementation, **SIZES, **settings)


def falcon_grouped(implementation: str = "eager") -> nn.Module:
    """Return a Falcon of the newer kind: groups interleaved in one projection, rotated."""
    settings = {"num_kv_heads": 2, "new_decoder_architecture": True}
    return _model("falcon", "Falcon", implementation, **SIZES, **settings)


def llama_model(implementation: str = "eager") -> nn.Module:
    """Return a Llama with grouped queries."""
    return _model("llama", "Llama", implementation, **GROUPED)


def mistral_window(implementation: str = "eager") -> nn.Module:
    """Return a Mistral that sees three positions back."""
    return _model("mistral", "Mistral", implementation, **GROUPED, sliding_window=3)


def gemma2_model(implementation: str = "eager") -> nn.Module:
    """Return a Gemma 2: soft-capped scores, one layer with a window and one without."""
    settings = GROUPED | {"num_hidden_layers": 2, "sliding_window": 3, "query_pre_attn_scalar": 8}
    return _model("gemma2", "Gemma2", implementation, **settings)


def gemma3(implementation: str = "eager") -> nn.Module:
    """Return a Gemma 3: normalised queries and keys, a window, a rotation for each kind."""
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}
    settings = GROUPED | {"num_hidden_layers": 2, "query_pre_attn_scalar": 8} | kinds
    config = configured("gemma3", "Gemma3TextConfig", implementation, **settings)
    return built("gemma3", "Gemma3TextModel", config)


def gpt_oss(implementation: str = "eager") -> nn.Module:
    """Return a GPT-OSS: a learned sink in each softmax, one layer with a window and one without."""
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 3}
    settings = GROUPED | {"num_hidden_layers": 2} | experts
    return _model("gpt_oss", "GptOss", implementation, **settings)


LATENT = SIZES | {
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6,
    "v_head_dim": 12,
    "first_k_dense_replace": 1,
}


def deepseek_v2(implementation: str = "eager") -> nn.Module:
    """Return a DeepSeek-V2: keys and values from one latent, rotated as complex numbers."""
    return _model("deepseek_v2", "DeepseekV2", implementation, **LATENT)


def deepseek_v3(implementation: str = "eager") -> nn.Module:
    """Return a DeepSeek-V3: keys and values from one latent, rotated by neighbouring pairs."""
    return _model("deepseek_v3", "DeepseekV3", implementation, **LATENT)


def cohere(implementation: str = "eager") -> nn.Module:
    """Return a Cohere: rotated by neighbouring pairs, queries and keys normalised."""
    return _model("cohere", "Cohere", implementation, **GROUPED, use_qk_norm=True)


def cohere2(implementation: str = "eager") -> nn.Module:
    """Return a Cohere 2: windowed layers are rotated, full ones are not."""
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3}
    return _model(
        "cohere2", "Cohere2", implementation, **GROUPED | {"num_hidden_layers": 2}, **kinds
    )


def phi3(implementation: str = "eager") -> nn.Module:
    """Return a Phi-3: one fused projection, grouped, a window."""
    return _model("phi3", "Phi3", implementation, **GROUPED, sliding_window=3)


def qwen3(implementation: str = "eager") -> nn.Module:
    """Return a Qwen3: each head's queries and keys are normalised."""
    return _model("qwen3", "Qwen3", implementation, **GROUPED)


def olmo2(implementation: str = "eager") -> nn.Module:
    """Return an OLMo 2: queries and keys are normalised over all heads."""
    return _model("olmo2", "Olmo2", implementation, **SIZES, num_key_value_heads=2)


def granite(implementation: str = "eager") -> nn.Module:
    """Return a Granite with 1/d_k as its scale, as its published models have."""
    return _model("granite", "Granite", implementation, **GROUPED, attention_multiplier=1 / 8)


def diffllama(implementation: str = "eager") -> nn.Module:
    """Return a DiffLlama: the difference of two softmaxes."""
    return _model("diffllama", "DiffLlama", implementation, **GROUPED)


def doge(implementation: str = "eager") -> nn.Module:
    """Return a Doge: a mask made of the values themselves."""
    return _model("doge", "Doge", implementation, **GROUPED)


def qwen3_next(implementation: str = "eager") -> nn.Module:
    """Return a Qwen3-Next: a layer of a gated delta rule, then one of gated attention."""
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
    widths = {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 0}
    kinds = {"layer_types": ["linear_attention", "full_attention"]}
    settings = GROUPED | {"num_hidden_layers": 2} | linear | widths | kinds
    return _model("qwen3_next", "Qwen3Next", implementation, **settings)


def minimax(implementation: str = "eager") -> nn.Module:
    """Return a MiniMax: a layer of lightning attention, then one of softmax attention."""
    kinds = {"layer_types": ["linear_attention", "full_attention"], "block_size": 4}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
    settings = GROUPED | {"num_hidden_layers": 2} | kinds | experts
    return _model("minimax", "MiniMax", implementation, **settings)


def llama4(implementation: str = "eager") -> nn.Module:
    """Return a Llama 4: attention in chunks, rotated as complex numbers; then over all."""
    kinds = {"layer_types": ["chunked_attention", "full_attention"], "no_rope_layers": [1, 0]}
    settings = {"attention_chunk_size": 4, "moe_layers": [], "num_hidden_layers": 2}
    settings |= {"intermediate_size_mlp": 64}
    config = configured("llama4", "Llama4TextConfig", implementation, **GROUPED | settings, **kinds)
    return built("llama4", "Llama4TextModel", config)


LEFT = "tokens(3, 7), attention_mask=padded(3, 7, left=True)"
STEP = "tokens(3, 2), attention_mask=padded(3, 6, left=True)"

CASES = (
    Case("gpt2_model", LEFT),
    Case(
        "gpt2_model",
        f"{STEP}, **past(1, 3, 4, 16, batch=3)",
        EAGER,
        name="gpt2_step",
    ),
    Case("gptj", LEFT, SDPA),
    Case("codegen", LEFT, EAGER),
    Case("gpt_bigcode", LEFT, SDPA),
    Case("gpt_neox_model", LEFT, SDPA),
    Case("opt_model", LEFT, SDPA),
    Case("bloom_model", LEFT, EAGER),
    Case("mpt_model", LEFT, EAGER),
    Case("falcon_alibi", LEFT, SDPA),
    Case("falcon_grouped", LEFT, EAGER),
    Case("llama_model", f"{STEP}, **past(1, 2, 4, 8, batch=3)"),
    Case("mistral_window", LEFT, SDPA),
    Case("gemma2_model", LEFT, EAGER),
    Case("gemma3", LEFT, SDPA),
    Case("gpt_oss", LEFT, EAGER),
    Case("deepseek_v2", LEFT, EAGER),
    Case("deepseek_v3", LEFT, SDPA),
    Case("cohere", LEFT, SDPA),
    Case("cohere2", LEFT, EAGER),
    Case("phi3", LEFT, SDPA),
    Case("qwen3", LEFT, EAGER),
    Case("olmo2", LEFT, SDPA),
    Case("granite", LEFT, EAGER),
    Case("diffllama", LEFT, EAGER),
    Case("doge", LEFT, EAGER),
    Case("qwen3_next", LEFT, EAGER),
    Case("minimax", LEFT, EAGER),
    Case("llama4", LEFT, SDPA),
)
