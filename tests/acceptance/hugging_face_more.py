"""Factories of further transformers modules: scales that a configuration states, more families."""

from __future__ import annotations

from typing import Any

import torch  # noqa: F401 - named in calls
from torch import nn

from tests.acceptance.cases import (  # noqa: F401 - named in calls
    EAGER,
    SDPA,
    Case,
    built,
    configured,
    padded,
    tokens,
)

WIDTH = {"hidden_size": 48, "num_hidden_layers": 1, "intermediate_size": 64}
HEADS = WIDTH | {"num_attention_heads": 3}
WORDS = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = WIDTH | WORDS | {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8}
IMAGE = HEADS | {"image_size": 12, "patch_size": 4}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 16,
}


def _model(family: str, name: str, implementation: str, **settings: Any) -> nn.Module:
    config = configured(family, f"{name}Config", implementation, **settings)
    return built(family, f"{name}Model", config)


def llama_yarn(implementation: str = "eager") -> nn.Module:
    """Return a Llama whose rotation multiplies cosines and sines by YaRN's factor."""
    return _model("llama", "Llama", implementation, **GROUPED, rope_parameters=YARN)


def granite_unscaled(implementation: str = "eager") -> nn.Module:
    """Return a Granite whose multiplier is 1, as its configuration has it by default."""
    return _model("granite", "Granite", implementation, **GROUPED)


def gpt2_by_layer(implementation: str = "eager") -> nn.Module:
    """Return a GPT-2 whose second layer divides the scores by 2."""
    sizes = {"n_embd": 48, "n_head": 3, "n_positions": 32, "n_layer": 2}
    settings = sizes | WORDS | {"scale_attn_by_inverse_layer_idx": True}
    return _model("gpt2", "GPT2", implementation, **settings)


def starcoder2(implementation: str = "eager") -> nn.Module:
    """Return a StarCoder2: grouped queries with biases."""
    sizes = {k: v for k, v in GROUPED.items() if k != "head_dim"}
    return _model("starcoder2", "Starcoder2", implementation, **sizes)


def glm(implementation: str = "eager") -> nn.Module:
    """Return a GLM: half of each head is rotated, by neighbouring pairs."""
    return _model("glm", "Glm", implementation, **GROUPED)


def helium(implementation: str = "eager") -> nn.Module:
    """Return a Helium: rotated by neighbouring pairs."""
    return _model("helium", "Helium", implementation, **GROUPED)


def stablelm(implementation: str = "eager") -> nn.Module:
    """Return a StableLM: a quarter of each head is rotated."""
    settings = HEADS | WORDS | {"num_key_value_heads": 3}
    return _model("stablelm", "StableLm", implementation, **settings)


def olmo(implementation: str = "eager") -> nn.Module:
    """Return an OLMo: what is projected to queries, keys and values is clipped."""
    settings = HEADS | WORDS | {"clip_qkv": 2.0}
    return _model("olmo", "Olmo", implementation, **settings)


def persimmon(implementation: str = "eager") -> nn.Module:
    """Return a Persimmon: one fused map by heads, queries and keys normalised."""
    return _model("persimmon", "Persimmon", implementation, **HEADS, **WORDS)


def dinov2(implementation: str = "eager") -> nn.Module:
    """Return a DINOv2 image encoder."""
    sizes = {k: v for k, v in IMAGE.items() if k != "intermediate_size"}
    return _model("dinov2", "Dinov2", implementation, **sizes)


def videomae(implementation: str = "eager") -> nn.Module:
    """Return a VideoMAE: the key map has no bias, the others have one of their own."""
    return _model("videomae", "VideoMAE", implementation, **IMAGE, num_frames=2, tubelet_size=1)


LEFT = "tokens(3, 7), attention_mask=padded(3, 7, left=True)"

CASES = (
    Case("llama_yarn", LEFT, EAGER),
    Case("granite_unscaled", LEFT, EAGER),
    Case("gpt2_by_layer", LEFT, EAGER),
    Case("starcoder2", LEFT, SDPA),
    Case("glm", LEFT, EAGER),
    Case("helium", LEFT, SDPA),
    Case("stablelm", LEFT, EAGER),
    Case("olmo", LEFT, SDPA),
    Case("persimmon", LEFT, EAGER),
    Case("dinov2", "torch.randn(2, 3, 12, 12)", SDPA),
    Case("videomae", "torch.randn(2, 2, 3, 12, 12)", EAGER),
)
