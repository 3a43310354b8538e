"""Factories for modules of the transformers package that do depart from the definition.

mha-lint loads this file by path, as it does hugging_face.py. What is reported on these is true: the
table says why, and which stated contract (``--expect``) settles it, where one does.
"""

from __future__ import annotations

from torch import nn

from tests.acceptance.cases import EAGER, Case, built, configured, tokens  # noqa: F401 - in calls


def gpt_neo_unscaled(implementation: str = "eager") -> nn.Module:
    """Return a GPT-Neo attention as the class initialises it."""
    settings = {"hidden_size": 48, "num_heads": 3, "num_layers": 1, "vocab_size": 40}
    kinds = {"attention_types": [[["global"], 1]], "max_position_embeddings": 32}
    config = configured("gpt_neo", "GPTNeoConfig", implementation, **settings, **kinds)
    return built("gpt_neo", "GPTNeoModel", config).get_submodule("h.0.attn.attention")


def cvt(implementation: str = "eager") -> nn.Module:
    """Return a CvT attention: depthwise convolutions before the projections, coarser keys."""
    sizes = {"num_heads": 3, "embed_dim": 48, "kernel_size": 3, "padding_q": 1, "padding_kv": 1}
    strides = {"stride_q": 1, "stride_kv": 2, "qkv_projection_method": "dw_bn", "qkv_bias": True}
    rates = {"attention_drop_rate": 0.0, "drop_rate": 0.0, "with_cls_token": False}
    return built("cvt", "CvtAttention", **sizes, **strides, **rates)


def falcon_twice(implementation: str = "eager") -> nn.Module:
    """Return a Falcon with linear biases whose attention is written out."""
    sizes = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 1, "vocab_size": 40}
    config = configured("falcon", "FalconConfig", implementation, **sizes, alibi=True)
    return built("falcon", "FalconModel", config)


def lightglue_unmasked(implementation: str = "sdpa") -> nn.Module:
    """Return a LightGlue attention from one image's points to the other's, which gets no mask."""
    sizes = {"descriptor_dim": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    config = configured("lightglue", "LightGlueConfig", implementation, **sizes)
    return built("lightglue", "LightGlueAttention", config, 0)


def nystromformer(implementation: str = "eager") -> nn.Module:
    """Return a Nystroemformer attention, three softmaxes around landmarks."""
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 1}
    sizes |= {"num_landmarks": 4, "segment_means_seq_len": 8, "conv_kernel_size": 3}
    config = configured("nystromformer", "NystromformerConfig", implementation, **sizes)
    return built("nystromformer", "NystromformerAttention", config)


CASES = (
    # GPT-Neo's scores are not scaled; the published weights were trained so, but the class draws
    # queries and keys from one and the same distribution, which T5's does not.
    Case("gpt_neo_unscaled", "torch.randn(2, 7, 48)", EAGER, ("MHA201",), settled_by="scale=none"),
    # CvT multiplies the scores by 1/sqrt(embed_dim) with any number of heads, as its authors did.
    Case("cvt", "torch.randn(2, 12, 48), 3, 4", EAGER, ("MHA202",)),
    # The model adds the linear biases to the mask, and the attention adds them to the scores again;
    # with scaled_dot_product_attention they are added once, and the outputs differ.
    Case("falcon_twice", "tokens(2, 7)", EAGER, ("MHA505",)),
    # The class says is_causal = True: without a mask scaled_dot_product_attention hides the points
    # that come later in the other image's list, the written-out attention does not.
    Case(
        "lightglue_unmasked",
        "torch.randn(2, 7, 48), encoder_hidden_states=torch.randn(2, 7, 48)",
        ("sdpa",),
        ("MHA311",),
    ),
    # The pseudo-inverse starts from the largest column sum of all samples and heads, so that samples
    # influence each other; NystromformerSelfAttention makes a dropout and never calls it.
    Case("nystromformer", "torch.randn(3, 8, 48)", EAGER, ("MHA109", "MHA601")),
)
