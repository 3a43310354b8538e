"""Factories for attention modules of the transformers package, each built from a small config.

mha-lint loads this file by path: a case's ``build`` and ``call`` are expressions in its namespace.
Every module is correct, so whatever is reported on one of them is a false alarm of ours.
"""

from __future__ import annotations

from torch import nn

from tests.acceptance.cases import EAGER, Case, built, causal, configured, rotary, slopes  # noqa: F401 - named in calls


def bert(implementation: str = "eager") -> nn.Module:
    """Return a BERT self-attention with its output projection."""
    settings = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    config = configured("bert", "BertConfig", implementation, **settings)
    return built("bert", "BertAttention", config)


def gpt2(implementation: str = "eager") -> nn.Module:
    """Return a GPT-2 attention."""
    settings = {"n_embd": 48, "n_head": 3, "n_positions": 32}
    config = configured("gpt2", "GPT2Config", implementation, **settings)
    return built("gpt2", "GPT2Attention", config, layer_idx=0)


def gpt_neox(implementation: str = "eager") -> nn.Module:
    """Return a GPT-NeoX attention."""
    settings = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    config = configured("gpt_neox", "GPTNeoXConfig", implementation, **settings)
    return built("gpt_neox", "GPTNeoXAttention", config, layer_idx=0)


GROUPED = {
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "head_dim": 8,
}


def llama(implementation: str = "eager") -> nn.Module:
    """Return a Llama attention with grouped queries."""
    config = configured("llama", "LlamaConfig", implementation, **GROUPED)
    return built("llama", "LlamaAttention", config, 0)


def mistral(implementation: str = "eager") -> nn.Module:
    """Return a Mistral attention with grouped queries."""
    config = configured("mistral", "MistralConfig", implementation, **GROUPED)
    return built("mistral", "MistralAttention", config, 0)


def qwen2(implementation: str = "eager") -> nn.Module:
    """Return a Qwen2 attention with grouped queries."""
    config = configured("qwen2", "Qwen2Config", implementation, **GROUPED)
    return built("qwen2", "Qwen2Attention", config, 0)


def gemma2(implementation: str = "eager") -> nn.Module:
    """Return a Gemma 2 attention: soft-capped scores, a scale of its own."""
    settings = GROUPED | {"query_pre_attn_scalar": 16}
    config = configured("gemma2", "Gemma2Config", implementation, **settings)
    return built("gemma2", "Gemma2Attention", config, 0)


def phi(implementation: str = "eager") -> nn.Module:
    """Return a Phi attention: half of each head is rotated."""
    settings = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    config = configured("phi", "PhiConfig", implementation, **settings)
    return built("phi", "PhiAttention", config, 0)


def t5(implementation: str = "eager") -> nn.Module:
    """Return a T5 attention as T5 initialises it: no scale, a relative bias."""
    settings = {"d_model": 48, "d_kv": 16, "num_heads": 3, "num_layers": 1, "d_ff": 64}
    config = configured("t5", "T5Config", implementation, vocab_size=40, **settings)
    encoder = built("t5", "T5EncoderModel", config)
    return encoder.get_submodule("encoder.block.0.layer.0.SelfAttention")


def bart(implementation: str = "eager") -> nn.Module:
    """Return a BART encoder attention."""
    config = configured("bart", "BartConfig", implementation, d_model=48, encoder_attention_heads=3)
    return built("bart", "BartAttention", 48, 3, config=config)


def bart_cross(implementation: str = "eager") -> nn.Module:
    """Return a BART decoder's cross-attention."""
    config = configured("bart", "BartConfig", implementation, d_model=48, decoder_attention_heads=3)
    return built("bart", "BartAttention", 48, 3, is_decoder=True, config=config, layer_idx=0)


def vit(implementation: str = "eager") -> nn.Module:
    """Return a ViT attention."""
    settings = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    return built("vit", "ViTAttention", configured("vit", "ViTConfig", implementation, **settings))


def clip(implementation: str = "eager") -> nn.Module:
    """Return a CLIP vision attention."""
    settings = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    config = configured("clip", "CLIPVisionConfig", implementation, **settings)
    return built("clip", "CLIPAttention", config)


def whisper(implementation: str = "eager") -> nn.Module:
    """Return a Whisper encoder attention."""
    config = configured("whisper", "WhisperConfig", implementation, d_model=48)
    return built("whisper", "WhisperAttention", 48, 3, config=config)


def bloom(implementation: str = "eager") -> nn.Module:
    """Return a BLOOM attention: fused by heads, linear biases."""
    config = configured("bloom", "BloomConfig", implementation, hidden_size=48, n_head=3)
    return built("bloom", "BloomAttention", config, layer_idx=0)


def falcon(implementation: str = "eager") -> nn.Module:
    """Return a Falcon attention with one key/value head."""
    settings = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    config = configured("falcon", "FalconConfig", implementation, multi_query=True, **settings)
    return built("falcon", "FalconAttention", config, layer_idx=0)


def deberta_v2(implementation: str = "eager") -> nn.Module:
    """Return a DeBERTa-v2 attention without its position terms."""
    settings = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    config = configured("deberta_v2", "DebertaV2Config", implementation, **settings)
    return built("deberta_v2", "DebertaV2Attention", config)


def deberta_v2_positions(implementation: str = "eager") -> nn.Module:
    """Return a DeBERTa-v2 attention whose scores add up three contractions."""
    settings = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    positions = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8}
    config = configured("deberta_v2", "DebertaV2Config", implementation, **settings, **positions)
    return built("deberta_v2", "DebertaV2Attention", config)


def swin(implementation: str = "eager") -> nn.Module:
    """Return a Swin window attention."""
    config = configured("swin", "SwinConfig", implementation, embed_dim=48)
    return built("swin", "SwinAttention", config, 48, 3, 3)


def opt(implementation: str = "eager") -> nn.Module:
    """Return an OPT attention."""
    settings = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    config = configured("opt", "OPTConfig", implementation, **settings)
    return built("opt", "OPTAttention", config, layer_idx=0)


def mpt(implementation: str = "eager") -> nn.Module:
    """Return an MPT attention: fused, linear biases."""
    config = configured("mpt", "MptConfig", implementation, d_model=48, n_heads=3, n_layers=1)
    return built("mpt", "MptAttention", config, layer_idx=0)


def sam(implementation: str = "eager") -> nn.Module:
    """Return a SAM mask decoder attention from points to the image, at half the width."""
    settings = {"hidden_size": 48, "num_attention_heads": 3}
    config = configured("sam", "SamMaskDecoderConfig", implementation, **settings)
    return built("sam", "SamAttention", config, downsample_rate=2)


STATES = "torch.randn(2, 7, 48)"

CASES = (
    Case("bert", STATES),
    Case("gpt2", f"{STATES}, attention_mask=causal(7)"),
    Case("gpt_neox", f"{STATES}, causal(7), position_embeddings=rotary(4, 7)"),
    Case("llama", f"{STATES}, position_embeddings=rotary(8, 7), attention_mask=causal(7)"),
    Case("mistral", f"{STATES}, rotary(8, 7), causal(7)"),
    Case("qwen2", f"{STATES}, rotary(8, 7), causal(7)"),
    Case("gemma2", f"{STATES}, rotary(8, 7), causal(7)", EAGER),
    Case("phi", f"{STATES}, rotary(8, 7), causal(7)"),
    Case("t5", STATES),
    Case("bart", STATES),
    Case("bart_cross", f"{STATES}, key_value_states=torch.randn(2, 11, 48)"),
    Case("vit", STATES),
    Case("clip", STATES),
    Case("whisper", STATES),
    Case("bloom", f"{STATES}, {STATES}, slopes(3, 7).repeat(2, 1, 1), causal(7)", EAGER),
    Case("falcon", f"{STATES}, None, causal(7), position_embeddings=rotary(16, 7)"),
    Case("deberta_v2", f"{STATES}, torch.ones(2, 1, 7, 7)", EAGER),
    Case(
        "deberta_v2_positions",
        f"{STATES}, torch.ones(2, 1, 7, 7), rel_embeddings=torch.randn(16, 48)",
        EAGER,
    ),
    Case("swin", "torch.randn(4, 9, 48)"),
    Case("opt", f"{STATES}, attention_mask=causal(7)"),
    Case("mpt", f"{STATES}, -slopes(3, 7), attention_mask=causal(7) < 0", EAGER),
    Case("sam", "torch.randn(2, 1, 5, 48), torch.randn(2, 1, 9, 48), torch.randn(2, 1, 9, 48)"),
)
