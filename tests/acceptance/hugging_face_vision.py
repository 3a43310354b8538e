"""Factories for vision models of the transformers package, whole ones where windows or masks arise.

mha-lint loads this file by path, as it does hugging_face.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.acceptance.cases import (
    EAGER,
    SDPA,
    Case,
    built,
    configured,
    padded,  # noqa: F401 - named in calls
    rotary,  # noqa: F401 - named in calls
    tokens,  # noqa: F401 - named in calls
)

HEADS = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
IMAGE = HEADS | {"intermediate_size": 64, "image_size": 12, "patch_size": 4}
STAGE = {"image_size": 16, "patch_size": 2, "embed_dim": 48, "depths": [2], "num_heads": [3]}


def _model(family: str, name: str, implementation: str, **settings: Any) -> nn.Module:
    config = configured(family, f"{name}Config", implementation, **settings)
    return built(family, f"{name}Model", config)


def beit(implementation: str = "eager") -> nn.Module:
    """Return a BEiT: a relative bias, keys without bias, scaled residuals."""
    return _model("beit", "Beit", implementation, **IMAGE, use_relative_position_bias=True)


def swin_model(implementation: str = "eager") -> nn.Module:
    """Return a Swin stage: one block of windows, one of shifted and masked windows."""
    return _model("swin", "Swin", implementation, **STAGE, window_size=4)


def swinv2(implementation: str = "eager") -> nn.Module:
    """Return a Swin v2 stage: cosine scores with a learned temperature, shifted windows."""
    return _model("swinv2", "Swinv2", implementation, **STAGE, window_size=4)


def segformer(implementation: str = "eager") -> nn.Module:
    """Return a SegFormer stage: keys and values from a coarser map."""
    sizes = {"depths": [1], "sr_ratios": [2], "hidden_sizes": [48], "num_attention_heads": [3]}
    patches = {"patch_sizes": [3], "strides": [2], "mlp_ratios": [2], "num_encoder_blocks": 1}
    return _model("segformer", "Segformer", implementation, **sizes, **patches)


def detr_encoder(implementation: str = "eager") -> nn.Module:
    """Return a DETR encoder layer: positions on queries and keys, not on values."""
    sizes = {"d_model": 48, "encoder_attention_heads": 3, "encoder_ffn_dim": 64}
    config = configured("detr", "DetrConfig", implementation, **sizes)
    return built("detr", "DetrEncoderLayer", config)


def detr_decoder(implementation: str = "eager") -> nn.Module:
    """Return a DETR decoder layer: object queries attend to each other and to the image."""
    sizes = {"d_model": 48, "decoder_attention_heads": 3, "decoder_ffn_dim": 64}
    config = configured("detr", "DetrConfig", implementation, **sizes)
    return built("detr", "DetrDecoderLayer", config)


def mask2former(implementation: str = "eager") -> nn.Module:
    """Return a Mask2Former decoder layer: cross-attention under predicted masks, time first."""
    sizes = {"hidden_dim": 48, "num_attention_heads": 3, "dim_feedforward": 64}
    config = configured("mask2former", "Mask2FormerConfig", implementation, **sizes)
    return built("mask2former", "Mask2FormerMaskedAttentionDecoderLayer", config)


def sam_vision(implementation: str = "eager") -> nn.Module:
    """Return a SAM image encoder: windows with padding, then all; biases along rows and columns."""
    sizes = IMAGE | {"num_hidden_layers": 2, "image_size": 20, "window_size": 3, "mlp_dim": 64}
    settings = sizes | {"global_attn_indexes": [1], "output_channels": 16}
    config = configured("sam", "SamVisionConfig", implementation, **settings)
    return built("sam", "SamVisionModel", config)


def clip_text(implementation: str = "eager") -> nn.Module:
    """Return a CLIP text encoder, which is causal."""
    sizes = HEADS | {"vocab_size": 40, "intermediate_size": 64, "max_position_embeddings": 16}
    config = configured("clip", "CLIPTextConfig", implementation, **sizes)
    return built("clip", "CLIPTextModel", config)


def siglip_vision(implementation: str = "eager") -> nn.Module:
    """Return a SigLIP image encoder with its pooling by one learned query."""
    config = configured("siglip", "SiglipVisionConfig", implementation, **IMAGE)
    return built("siglip", "SiglipVisionModel", config)


def blip2_qformer(implementation: str = "eager") -> nn.Module:
    """Return a Q-Former: learned queries attend to each other, then to an image of another width."""
    sizes = HEADS | {"intermediate_size": 64, "encoder_hidden_size": 36}
    config = configured("blip_2", "Blip2QFormerConfig", implementation, **sizes)
    return built("blip_2", "Blip2QFormerModel", config)


def dinov3(implementation: str = "eager") -> nn.Module:
    """Return a DINOv3: patches are rotated by their place, the first tokens are not."""
    return _model("dinov3_vit", "DINOv3ViT", implementation, **IMAGE, num_register_tokens=2)


def vitdet(implementation: str = "eager") -> nn.Module:
    """Return a ViTDet: windows over a padded map, biases along rows and columns."""
    sizes = HEADS | {"image_size": 20, "patch_size": 4, "pretrain_image_size": 20}
    windows = {"window_size": 3, "window_block_indices": [0]}
    settings = sizes | windows | {"use_relative_position_embeddings": True}
    return _model("vitdet", "VitDet", implementation, **settings)


def hiera(implementation: str = "eager") -> nn.Module:
    """Return a Hiera: attention within units of the mask, queries pooled at a stage's start."""
    sizes = {"embed_dim": 24, "image_size": [32, 32], "depths": [1, 1], "num_heads": [2, 4]}
    units = {
        "num_query_pool": 1,
        "masked_unit_size": [2, 2],
        "masked_unit_attention": [True, False],
    }
    return _model("hiera", "Hiera", implementation, **sizes, **units)


def levit(implementation: str = "eager") -> nn.Module:
    """Return a LeViT attention: wide values, a bias for each offset, normalised by batch."""
    return built("levit", "LevitAttention", 48, 8, 3, 2, 3)


def levit_subsample(implementation: str = "eager") -> nn.Module:
    """Return a LeViT attention that asks from every other place."""
    return built("levit", "LevitAttentionSubsample", 48, 60, 8, 3, 4, 2, 4, 2)


def timesformer(implementation: str = "eager") -> nn.Module:
    """Return a TimeSformer: over time at each place, then over places in each frame."""
    return _model("timesformer", "Timesformer", implementation, **IMAGE, num_frames=2)


def qwen2_vl_vision(implementation: str = "eager") -> nn.Module:
    """Return a Qwen2-VL image attention: packed images, each attends to itself."""
    sizes = {"embed_dim": 48, "num_heads": 3, "hidden_size": 48, "depth": 1}
    config = configured("qwen2_vl", "Qwen2VLVisionConfig", implementation, **sizes)
    return built("qwen2_vl", "VisionAttention", config)


def idefics2_resampler(implementation: str = "eager") -> nn.Module:
    """Return an Idefics2 resampler attention: latents attend to the image and to themselves."""
    sizes = {"hidden_size": 48, "resampler_n_heads": 6, "num_key_value_heads": 2}
    settings = sizes | {"resampler_head_dim": 8}
    config = configured("idefics2", "Idefics2PerceiverConfig", implementation, **settings)
    return built("idefics2", "Idefics2PerceiverAttention", config, 0)


def lxmert(implementation: str = "eager") -> nn.Module:
    """Return an LXMERT layer: two streams ask each other, then themselves."""
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 64}
    config = configured("lxmert", "LxmertConfig", implementation, **sizes)
    return built("lxmert", "LxmertXLayer", config)


def layoutlmv3(implementation: str = "eager") -> nn.Module:
    """Return a LayoutLMv3 attention: scores divided, softmaxed by a detour against overflow."""
    sizes = HEADS | {"has_relative_attention_bias": True}
    config = configured("layoutlmv3", "LayoutLMv3Config", implementation, **sizes)
    return built("layoutlmv3", "LayoutLMv3Attention", config)


def lightglue(implementation: str = "eager") -> nn.Module:
    """Return a LightGlue attention from one image's points to the other's."""
    sizes = {"descriptor_dim": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    config = configured("lightglue", "LightGlueConfig", implementation, **sizes)
    return built("lightglue", "LightGlueAttention", config, 0)


def images(size: int, batch: int = 2) -> Tensor:
    """Return square images (B, 3, size, size)."""
    return torch.randn(batch, 3, size, size)


STATES = "torch.randn(2, 7, 48)"

CASES = (
    Case("beit", "images(12)", EAGER),
    Case("swin_model", "images(16)", SDPA),
    Case("swinv2", "images(16)", EAGER),
    Case("segformer", "images(12)", SDPA),
    Case(
        "detr_encoder", f"{STATES}, None, spatial_position_embeddings=torch.randn(2, 7, 48)", EAGER
    ),
    Case(
        "detr_decoder",
        "torch.randn(2, 5, 48), object_queries_position_embeddings=torch.randn(2, 5, 48),"
        f" encoder_hidden_states={STATES}, spatial_position_embeddings=torch.randn(2, 7, 48)",
        SDPA,
    ),
    Case(
        "mask2former",
        "torch.randn(5, 2, 48), 0, query_position_embeddings=torch.randn(5, 2, 48),"
        " position_embeddings=[torch.randn(9, 2, 48)],"
        " encoder_hidden_states=[torch.randn(9, 2, 48)],"
        " encoder_attention_mask=torch.rand(6, 5, 9) > 0.7",
        EAGER,
    ),
    Case("sam_vision", "images(20)", SDPA),
    Case("clip_text", "tokens(3, 7), attention_mask=padded(3, 7)", SDPA),
    Case("siglip_vision", "images(12)", EAGER),
    Case(
        "blip2_qformer", "torch.randn(2, 5, 48), encoder_hidden_states=torch.randn(2, 7, 36)", SDPA
    ),
    Case("dinov3", "images(12)", EAGER),
    Case("vitdet", "images(20)", EAGER),
    Case("hiera", "images(32)", EAGER),
    Case("levit", "torch.randn(2, 9, 48)", EAGER),
    Case("levit_subsample", "torch.randn(2, 16, 48)", EAGER),
    Case("timesformer", "torch.randn(2, 2, 3, 12, 12)", EAGER),
    Case(
        "qwen2_vl_vision",
        "torch.randn(7, 48), torch.tensor([0, 3, 7]), [t[0] for t in rotary(16, 7)]",
        EAGER,
    ),
    Case("idefics2_resampler", "torch.randn(2, 5, 48), torch.randn(2, 7, 48)", SDPA),
    Case("lxmert", f"{STATES}, None, torch.randn(2, 5, 48), None", EAGER),
    Case("layoutlmv3", STATES, EAGER),
    Case(
        "lightglue",
        f"{STATES}, None, None, torch.randn(2, 7, 48), (1.0 - padded(2, 7)[:, None, None]) * -3e38",
        EAGER,
    ),
)
