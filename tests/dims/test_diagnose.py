"""Real models: config and shapes as they were published, and the heads they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

Shapes = dict[str, tuple[int, ...]]
Model = tuple[dict[str, Any], Shapes, list[tuple[str, int, dict[str, int]]]]


def layers(count: int, prefix: str, shapes: Mapping[str, tuple[int, ...]]) -> Shapes:
    return {f"{prefix.format(i)}.{n}": s for i in range(count) for n, s in shapes.items()}


def separate(q: int, kv: int, width: int, out: str = "o_proj") -> Shapes:
    return {
        "q_proj.weight": (q, width),
        "k_proj.weight": (kv, width),
        "v_proj.weight": (kv, width),
        f"{out}.weight": (width, q),
    }


def biased(shapes: Mapping[str, tuple[int, ...]]) -> Shapes:
    return dict(shapes) | {n.replace("weight", "bias"): (s[0],) for n, s in shapes.items()}


def llama(count: int, q: int, kv: int, width: int) -> Shapes:
    return layers(count, "model.layers.{}.self_attn", separate(q, kv, width))


def sizes(d_model: int, h: int, h_kv: int, d_k: int, **more: int) -> dict[str, int]:
    return {"d_model": d_model, "h": h, "h_kv": h_kv, "d_k": d_k, "d_v": d_k} | more


def t5(d_model: int, inner: int, heads: int) -> Shapes:
    part = {
        "q.weight": (inner, d_model),
        "k.weight": (inner, d_model),
        "v.weight": (inner, d_model),
        "o.weight": (d_model, inner),
    }
    return (
        layers(6, "encoder.block.{}.layer.0.SelfAttention", part)
        | layers(6, "decoder.block.{}.layer.0.SelfAttention", part)
        | layers(6, "decoder.block.{}.layer.1.EncDecAttention", part)
        | {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, heads)}
    )


def bert(name: str, out: str) -> Shapes:
    return biased(
        {f"{name}.{p}.weight": (768, 768) for p in ("query", "key", "value")}
        | {f"{out}.dense.weight": (768, 768)}
    )


WHISPER = biased(separate(768, 768, 768, "out_proj"))
del WHISPER["k_proj.bias"]

MODELS: dict[str, Model] = {
    "Llama 2 7B": (
        {
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "num_hidden_layers": 32,
        },
        llama(32, 4096, 4096, 4096),
        [("model.layers.0-31.self_attn", 32, sizes(4096, 32, 32, 128))],
    ),
    "Llama 2 70B": (
        {
            "hidden_size": 8192,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "num_hidden_layers": 80,
        },
        llama(80, 8192, 1024, 8192),
        [("model.layers.0-79.self_attn", 80, sizes(8192, 64, 8, 128))],
    ),
    "Llama 3 8B": (
        {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
        llama(32, 4096, 1024, 4096),
        [("model.layers.0-31.self_attn", 32, sizes(4096, 32, 8, 128))],
    ),
    "Llama 3 8B, Meta's names": (
        {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8},
        layers(
            32,
            "layers.{}.attention",
            {
                "wq.weight": (4096, 4096),
                "wk.weight": (1024, 4096),
                "wv.weight": (1024, 4096),
                "wo.weight": (4096, 4096),
            },
        ),
        [("layers.0-31.attention", 32, sizes(4096, 32, 8, 128))],
    ),
    "Mistral 7B": (
        {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
        llama(32, 4096, 1024, 4096),
        [("model.layers.0-31.self_attn", 32, sizes(4096, 32, 8, 128))],
    ),
    "Mistral Nemo": (
        {
            "hidden_size": 5120,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
        },
        llama(40, 4096, 1024, 5120),
        [("model.layers.0-39.self_attn", 40, sizes(5120, 32, 8, 128))],
    ),
    "Gemma 7B": (
        {
            "hidden_size": 3072,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "head_dim": 256,
        },
        llama(28, 4096, 4096, 3072),
        [("model.layers.0-27.self_attn", 28, sizes(3072, 16, 16, 256))],
    ),
    "Falcon 7B": (
        {
            "hidden_size": 4544,
            "num_attention_heads": 71,
            "num_kv_heads": 71,
            "multi_query": True,
            "new_decoder_architecture": False,
        },
        layers(
            32,
            "transformer.h.{}.self_attention",
            {"query_key_value.weight": (4672, 4544), "dense.weight": (4544, 4544)},
        ),
        [("transformer.h.0-31.self_attention", 32, sizes(4544, 71, 1, 64))],
    ),
    "Falcon 40B": (
        {
            "hidden_size": 8192,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "multi_query": True,
            "new_decoder_architecture": True,
        },
        layers(
            60,
            "transformer.h.{}.self_attention",
            {"query_key_value.weight": (9216, 8192), "dense.weight": (8192, 8192)},
        ),
        [("transformer.h.0-59.self_attention", 60, sizes(8192, 128, 8, 64))],
    ),
    "MPT 7B": (
        {
            "d_model": 4096,
            "n_heads": 32,
            "n_layers": 32,
            "attn_config": {"attn_type": "multihead_attention", "alibi": True},
        },
        layers(
            32,
            "transformer.blocks.{}.attn",
            {"Wqkv.weight": (12288, 4096), "out_proj.weight": (4096, 4096)},
        ),
        [("transformer.blocks.0-31.attn", 32, sizes(4096, 32, 32, 128))],
    ),
    "GPT-NeoX 20B": (
        {"hidden_size": 6144, "num_attention_heads": 64, "rotary_pct": 0.25},
        layers(
            44,
            "gpt_neox.layers.{}.attention",
            biased({"query_key_value.weight": (18432, 6144), "dense.weight": (6144, 6144)}),
        ),
        [("gpt_neox.layers.0-43.attention", 44, sizes(6144, 64, 64, 96))],
    ),
    "Phi-2": (
        {"hidden_size": 2560, "num_attention_heads": 32, "partial_rotary_factor": 0.4},
        layers(32, "model.layers.{}.self_attn", biased(separate(2560, 2560, 2560, "dense"))),
        [("model.layers.0-31.self_attn", 32, sizes(2560, 32, 32, 80))],
    ),
    "Phi-3 mini": (
        {"hidden_size": 3072, "num_attention_heads": 32, "num_key_value_heads": 32},
        layers(
            32,
            "model.layers.{}.self_attn",
            {"qkv_proj.weight": (9216, 3072), "o_proj.weight": (3072, 3072)},
        ),
        [("model.layers.0-31.self_attn", 32, sizes(3072, 32, 32, 96))],
    ),
    "Phi-3 medium": (
        {"hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 10},
        layers(
            40,
            "model.layers.{}.self_attn",
            {"qkv_proj.weight": (7680, 5120), "o_proj.weight": (5120, 5120)},
        ),
        [("model.layers.0-39.self_attn", 40, sizes(5120, 40, 10, 128))],
    ),
    "DeepSeek V2": (
        {
            "hidden_size": 5120,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        },
        layers(
            60,
            "model.layers.{}.self_attn",
            {
                "q_a_proj.weight": (1536, 5120),
                "q_a_layernorm.weight": (1536,),
                "q_b_proj.weight": (24576, 1536),
                "kv_a_proj_with_mqa.weight": (576, 5120),
                "kv_a_layernorm.weight": (512,),
                "kv_b_proj.weight": (32768, 512),
                "o_proj.weight": (5120, 16384),
            },
        ),
        [
            (
                "model.layers.0-59.self_attn",
                60,
                sizes(5120, 128, 128, 192, d_v=128, nope=128, rope=64, q_rank=1536, kv_rank=512),
            )
        ],
    ),
    "BERT base": (
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        layers(12, "bert.encoder.layer.{}", bert("attention.self", "attention.output"))
        | layers(12, "bert.encoder.layer.{}", {"output.dense.weight": (768, 3072)}),
        [("bert.encoder.layer.0-11.attention.self", 12, sizes(768, 12, 12, 64))],
    ),
    "ViT base": (
        {"hidden_size": 768, "num_attention_heads": 12, "image_size": 224, "patch_size": 16},
        layers(12, "vit.encoder.layer.{}", bert("attention.attention", "attention.output")),
        [("vit.encoder.layer.0-11.attention.attention", 12, sizes(768, 12, 12, 64))],
    ),
    "ViT base, timm": (
        {"hidden_size": 768, "num_attention_heads": 12},
        layers(
            12, "blocks.{}.attn", biased({"qkv.weight": (2304, 768), "proj.weight": (768, 768)})
        ),
        [("blocks.0-11.attn", 12, sizes(768, 12, 12, 64))],
    ),
    "Whisper small": (
        {
            "d_model": 768,
            "encoder_attention_heads": 12,
            "decoder_attention_heads": 12,
            "encoder_layers": 12,
        },
        layers(12, "model.encoder.layers.{}.self_attn", WHISPER)
        | layers(12, "model.decoder.layers.{}.self_attn", WHISPER)
        | layers(12, "model.decoder.layers.{}.encoder_attn", WHISPER),
        [
            ("model.decoder.layers.0-11.encoder_attn", 12, sizes(768, 12, 12, 64)),
            ("model.decoder.layers.0-11.self_attn", 12, sizes(768, 12, 12, 64)),
            ("model.encoder.layers.0-11.self_attn", 12, sizes(768, 12, 12, 64)),
        ],
    ),
    "T5 small": (
        {"d_model": 512, "d_kv": 64, "num_heads": 8, "num_layers": 6},
        t5(512, 512, 8),
        [
            ("decoder.block.0-5.layer.0.SelfAttention", 6, sizes(512, 8, 8, 64)),
            ("decoder.block.0-5.layer.1.EncDecAttention", 6, sizes(512, 8, 8, 64)),
            ("encoder.block.0-5.layer.0.SelfAttention", 6, sizes(512, 8, 8, 64)),
        ],
    ),
    "T5 11B": (
        {"d_model": 1024, "d_kv": 128, "num_heads": 128, "num_layers": 6},
        t5(1024, 16384, 128),
        [
            ("decoder.block.0-5.layer.0.SelfAttention", 6, sizes(1024, 128, 128, 128)),
            ("decoder.block.0-5.layer.1.EncDecAttention", 6, sizes(1024, 128, 128, 128)),
            ("encoder.block.0-5.layer.0.SelfAttention", 6, sizes(1024, 128, 128, 128)),
        ],
    ),
    "GPT-2": (
        {"n_embd": 768, "n_head": 12, "n_layer": 12},
        layers(
            12,
            "h.{}.attn",
            {
                "bias": (1, 1, 1024, 1024),
                "c_attn.weight": (768, 2304),
                "c_attn.bias": (2304,),
                "c_proj.weight": (768, 768),
                "c_proj.bias": (768,),
            },
        ),
        [("h.0-11.attn", 12, sizes(768, 12, 12, 64))],
    ),
    "nn.MultiheadAttention": (
        {"d_model": 512, "nhead": 8},
        layers(
            6,
            "encoder.layers.{}.self_attn",
            {
                "in_proj_weight": (1536, 512),
                "in_proj_bias": (1536,),
                "out_proj.weight": (512, 512),
                "out_proj.bias": (512,),
            },
        ),
        [("encoder.layers.0-5.self_attn", 6, sizes(512, 8, 8, 64))],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_config_and_checkpoint_of_a_real_model_agree(name: str, workshop: Any) -> None:
    config, shapes, expected = MODELS[name]
    report = workshop.diagnose(config, shapes)
    assert [c.message for c in report.contradictions] == []
    assert [(g.where, g.count, g.sizes) for g in report.groups] == expected
    assert {g.status for g in report.groups} == {"solved"}
    assert report.exit_code == 0


@pytest.mark.parametrize("name", [n for n in MODELS if n not in {"Llama 3 8B, Meta's names"}])
def test_the_config_of_a_real_model_alone_gives_the_same_heads(name: str, workshop: Any) -> None:
    config, _, expected = MODELS[name]
    report = workshop.diagnose(config, None)
    assert report.contradictions == []
    want = expected[0][2]
    for group in report.groups:
        assert {n: group.sizes.get(n) for n in ("h", "h_kv", "d_k", "d_v")} == {
            n: want[n] for n in ("h", "h_kv", "d_k", "d_v")
        }


def test_shapes_alone_leave_the_head_count_open(workshop: Any) -> None:
    report = workshop.diagnose(None, MODELS["Llama 3 8B"][1])
    (group,) = report.groups
    assert group.status == "open"
    found = {(c.sizes["h"], c.sizes["h_kv"], c.sizes["d_k"]): c.usual for c in group.candidates}
    assert found[32, 8, 128] and found[64, 16, 64] and found[16, 4, 256]
    assert not found[128, 32, 32]
    assert "num_attention_heads or head_dim would settle it" in report.notes[0]
    assert report.exit_code == 0


def test_the_norm_of_one_head_settles_it(workshop: Any) -> None:
    shapes = layers(
        2,
        "model.layers.{}.self_attn",
        separate(4096, 1024, 4096) | {"q_norm.weight": (128,), "k_norm.weight": (128,)},
    )
    (group,) = workshop.diagnose(None, shapes).groups
    assert (group.status, group.sizes) == ("solved", sizes(4096, 32, 8, 128))


def test_low_rank_attention_is_solved_by_its_shapes_alone(workshop: Any) -> None:
    _, shapes, expected = MODELS["DeepSeek V2"]
    (group,) = workshop.diagnose(None, shapes).groups
    assert group.sizes == expected[0][2]


def test_two_configs_are_compared(workshop: Any) -> None:
    from mha_lint.dims.diagnose import diagnose

    paths = [
        workshop.config(hidden_size=4096, num_attention_heads=32),
        workshop.config("params.json", dim=4096, n_heads=16),
    ]
    (found,) = diagnose(paths).contradictions
    assert (
        found.message == "config.json says num_attention_heads = 32, params.json says n_heads = 16"
    )


def test_an_adapter_is_compared_with_its_base(workshop: Any) -> None:
    from mha_lint.dims.diagnose import diagnose

    base = workshop.tensors(llama(4, 4096, 1024, 4096))
    adapter = workshop.tensors(
        layers(
            4,
            "base_model.model.model.layers.{}.self_attn",
            {
                "q_proj.lora_A.weight": (8, 4096),
                "q_proj.lora_B.weight": (4096, 8),
                "v_proj.lora_A.weight": (8, 4096),
                "v_proj.lora_B.weight": (4096, 8),
            },
        ),
        "adapter_model.safetensors",
    )
    (found,) = diagnose([base, adapter]).contradictions
    assert found.message == (
        "base_model.model.model.layers.0-3.self_attn: model.safetensors has v_proj.weight (1024, 4096), "
        "adapter_model.safetensors has v_proj (4096, 4096) by its LoRA tensors"
    )


def broken(
    name: str, config: dict[str, Any] | None = None, shapes: Shapes | None = None
) -> tuple[dict[str, Any], Shapes]:
    """Change a real model: keys of its config, and all shapes whose name holds a text."""
    stated, tensors, _ = MODELS[name]
    changed = dict(tensors)
    for text, shape in (shapes or {}).items():
        held = [n for n in changed if text in n]
        changed.update(dict.fromkeys(held or [text], shape))
    return stated | (config or {}), changed


GROUP = "model.layers.0-31.self_attn"
BROKEN: dict[str, tuple[tuple[dict[str, Any], Shapes], str, str, tuple[str, ...]]] = {
    "too many key/value heads stated": (
        broken("Llama 3 8B", {"num_key_value_heads": 32, "head_dim": 128}),
        GROUP,
        "q_proj.weight (4096, 4096) and k_proj.weight (1024, 4096): with head_dim 128 that is 32 query "
        "and 8 key/value heads, the config says num_key_value_heads = 32",
        ("k_proj.weight", "config num_key_value_heads", "config head_dim"),
    ),
    "too many key/value heads stated, no head_dim": (
        broken("Llama 3 8B", {"num_key_value_heads": 32}),
        GROUP,
        "q_proj.weight (4096, 4096) and k_proj.weight (1024, 4096): with head_dim 128 that is 32 query "
        "and 8 key/value heads, the config says num_key_value_heads = 32",
        (
            "q_proj.weight",
            "k_proj.weight",
            "config num_attention_heads",
            "config num_key_value_heads",
        ),
    ),
    "heads that do not divide the width": (
        broken("GPT-2", {"n_head": 10}),
        "h.0-11.attn",
        "c_proj.weight (768, 768) and config n_head = 10: c_proj.weight holds num_heads x v_head_dim = "
        "768, and 768 is no multiple of 10 (remainder 8)",
        ("c_proj.weight", "config n_head"),
    ),
    "another head_dim": (
        broken("Gemma 7B", {"head_dim": 192}),
        "model.layers.0-27.self_attn",
        "q_proj.weight (4096, 3072): with num_heads 16 that is head_dim 256, the config says head_dim = "
        "192, and 4096 is no multiple of 192",
        ("q_proj.weight", "config head_dim"),
    ),
    "another hidden_size": (
        broken("Llama 3 8B", {"hidden_size": 5120}),
        GROUP,
        "q_proj.weight (4096, 4096): that is d_model 4096, the config says hidden_size = 5120",
        ("q_proj.weight", "config hidden_size"),
    ),
    "o_proj takes too little": (
        broken("Mistral 7B", shapes={"o_proj": (4096, 3072)}),
        GROUP,
        "q_proj.weight (4096, 4096) and k_proj.weight (1024, 4096) give 4 query heads for each key/value "
        "head, v_proj.weight (1024, 4096) and o_proj.weight (4096, 3072) give 3",
        ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"),
    ),
    "o_proj gives another width": (
        broken("Mistral 7B", shapes={"o_proj": (3072, 4096)}),
        GROUP,
        "q_proj.weight (4096, 4096) and o_proj.weight (3072, 4096) disagree on d_model: 4096 and 3072",
        ("q_proj.weight", "o_proj.weight"),
    ),
    "v grouped otherwise than k": (
        broken("Llama 3 8B", shapes={"v_proj": (512, 4096)}),
        GROUP,
        "q_proj.weight (4096, 4096) and k_proj.weight (1024, 4096) give 4 query heads for each key/value "
        "head, v_proj.weight (512, 4096) and o_proj.weight (4096, 4096) give 8",
        ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"),
    ),
    "key/value heads that cannot be shared": (
        broken("Llama 3 8B", shapes={"k_proj": (1536, 4096), "v_proj": (1536, 4096)}),
        GROUP,
        "q_proj.weight (4096, 4096) and k_proj.weight (1536, 4096): 4096 is no multiple of 1536 (remainder "
        "1024), so no number of key/value heads can serve the query heads evenly",
        ("q_proj.weight", "k_proj.weight"),
    ),
    "one layer of 32": (
        broken(
            "Llama 3 8B",
            shapes={
                "layers.17.self_attn.k_proj": (512, 4096),
                "layers.17.self_attn.v_proj": (512, 4096),
            },
        ),
        "model.layers.17.self_attn",
        "q_proj.weight (4096, 4096) and k_proj.weight (512, 4096): with head_dim 128 that is 32 query and 4 "
        "key/value heads, the config says num_key_value_heads = 8",
        (
            "q_proj.weight",
            "k_proj.weight",
            "config num_attention_heads",
            "config num_key_value_heads",
        ),
    ),
    "joined rows that do not divide": (
        broken(
            "GPT-NeoX 20B",
            shapes={"query_key_value.weight": (18400, 6144), "query_key_value.bias": (18400,)},
        ),
        "gpt_neox.layers.0-43.attention",
        "query_key_value.weight (18400, 6144) and dense.weight (6144, 6144): 6144 of 18400 rows are queries, "
        "the other 12256 are keys and values, 6128 each, and 6144 is no multiple of 6128 (remainder 16)",
        ("query_key_value.weight", "dense.weight"),
    ),
    "joined rows of fewer groups": (
        broken("Falcon 40B", {"num_kv_heads": 16}),
        "transformer.h.0-59.self_attention",
        "query_key_value.weight (9216, 8192): with head_dim 64 that is 128 query and 8 key/value heads, the "
        "config says num_kv_heads = 16",
        ("query_key_value.weight", "config num_attention_heads", "config num_kv_heads"),
    ),
    "multi-query denied": (
        broken("Falcon 7B", {"multi_query": False}),
        "transformer.h.0-31.self_attention",
        "query_key_value.weight (4672, 4544): with head_dim 64 that is 71 query and 1 key/value heads, the "
        "config says multi_query = false, key/value heads = 71, and 4672 is no multiple of 71",
        ("query_key_value.weight", "config multi_query = false, key/value heads"),
    ),
    "MLA with another rotary width": (
        broken("DeepSeek V2", {"qk_rope_head_dim": 32}),
        "model.layers.0-59.self_attn",
        "q_b_proj.weight (24576, 1536): that is qk_rope_head_dim 64, the config says qk_rope_head_dim = 32",
        ("q_b_proj.weight", "config qk_nope_head_dim", "config qk_rope_head_dim"),
    ),
    "MLA with another rank": (
        broken("DeepSeek V2", shapes={"kv_b_proj": (32768, 448)}),
        "model.layers.0-59.self_attn",
        "kv_b_proj.weight (32768, 448) and config kv_lora_rank = 512 disagree on kv_lora_rank: 512 and 448",
        ("kv_b_proj.weight", "config kv_lora_rank"),
    ),
    "a bias of another width": (
        broken("Phi-2", shapes={"q_proj.bias": (2048,)}),
        GROUP,
        "q_proj.weight (2560, 2560) and q_proj.bias (2048,) disagree on num_heads x head_dim: 2560 and 2048",
        ("q_proj.weight", "q_proj.bias"),
    ),
    "T5 with another d_kv": (
        broken("T5 11B", {"d_kv": 64}),
        "decoder.block.0-5.layer.0.SelfAttention, decoder.block.0-5.layer.1.EncDecAttention, "
        "encoder.block.0-5.layer.0.SelfAttention",
        "q.weight (16384, 1024): with num_heads 128 that is head_dim 128, the config says d_kv = 64",
        ("q.weight", "config num_heads", "config d_kv"),
    ),
    "Whisper's decoder alone": (
        broken("Whisper small", {"decoder_attention_heads": 10}),
        "model.decoder.layers.0-11.encoder_attn, model.decoder.layers.0-11.self_attn",
        "q_proj.weight (768, 768) and config decoder_attention_heads = 10: q_proj.weight holds num_heads x "
        "head_dim = 768, and 768 is no multiple of 10 (remainder 8)",
        ("q_proj.weight", "config decoder_attention_heads"),
    ),
    "a norm of another width than a head": (
        broken(
            "Mistral Nemo",
            shapes={f"model.layers.{i}.self_attn.q_norm.weight": (160,) for i in range(40)},
        ),
        "model.layers.0-39.self_attn",
        "q_proj.weight (4096, 5120) and q_norm.weight (160,): q_proj.weight holds num_heads x head_dim = 4096, "
        "and 4096 is no multiple of 160 (remainder 96)",
        ("q_proj.weight", "q_norm.weight"),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_is_told_with_its_numbers_and_sources(name: str, workshop: Any) -> None:
    (config, shapes), where, message, sources = BROKEN[name]
    report = workshop.diagnose(config, shapes)
    first = report.contradictions[0]
    assert (first.where, first.message, first.sources) == (where, message, sources)
    assert report.exit_code == 1
    assert "contradictory" in {g.status for g in report.groups}


def test_a_layer_that_differs_is_named_without_a_config(workshop: Any) -> None:
    _, shapes = BROKEN["one layer of 32"][0]
    report = workshop.diagnose(None, shapes)
    assert [g.where for g in report.groups] == [
        "model.layers.0-16,18-31.self_attn",
        "model.layers.17.self_attn",
    ]
    assert (
        "model.layers.17.self_attn differs from model.layers.0-16,18-31.self_attn: k_proj.weight (512, "
        "4096) there, k_proj.weight (1024, 4096) in the others"
    ) in report.notes
