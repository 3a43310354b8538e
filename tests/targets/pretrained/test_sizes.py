"""Smaller integers, and what still holds between them."""

from __future__ import annotations

from typing import Any

import pytest

from mha_lint.targets.pretrained.leaves import replaced
from mha_lint.targets.pretrained.sizes import smaller

LLAMA: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}


def _small(values: dict[str, Any], variant: int = 0) -> dict[str, Any]:
    new = smaller(values, variant=variant, undone=frozenset(), wider=0)
    return replaced(values, new)


@pytest.mark.parametrize("variant", [0, 1])
def test_a_decoder_keeps_its_relations(variant: int) -> None:
    small = _small(LLAMA, variant)
    heads, shared = small["num_attention_heads"], small["num_key_value_heads"]
    assert heads * small["head_dim"] == small["hidden_size"]
    assert heads % shared == 0
    assert 1 < shared < heads
    assert small["intermediate_size"] / small["hidden_size"] == 3.5
    distinct = (small["hidden_size"], heads, shared, small["head_dim"])
    assert len(set(distinct)) == 4
    assert small["bos_token_id"] < small["eos_token_id"] < small["vocab_size"] <= 400
    assert small["hidden_size"] <= 48


def test_the_second_size_is_another() -> None:
    first, second = _small(LLAMA), _small(LLAMA, 1)
    for key in ("hidden_size", "num_attention_heads"):
        assert first[key] != second[key]


def test_equal_widths_of_two_parts_stay_equal() -> None:
    text = {"model_type": "t", "hidden_size": 3584, "num_attention_heads": 28}
    vision = {"model_type": "v", "hidden_size": 1280, "num_heads": 16, "out_hidden_size": 3584}
    small = _small({"text_config": text, "vision_config": vision})
    assert small["vision_config"]["out_hidden_size"] == small["text_config"]["hidden_size"]
    assert small["vision_config"]["hidden_size"] % small["vision_config"]["num_heads"] == 0
    assert small["text_config"]["hidden_size"] % small["text_config"]["num_attention_heads"] == 0


def test_rotary_sections_add_up_to_half_a_head() -> None:
    rope = {"rope_type": "default", "mrope_section": [16, 24, 24]}
    small = _small(LLAMA | {"rope_parameters": rope})
    assert sum(small["rope_parameters"]["mrope_section"]) == small["head_dim"] // 2


def test_low_rank_heads_keep_their_sum() -> None:
    values = {
        "hidden_size": 7168, "num_attention_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_head_dim": 192,
    }  # fmt: skip
    small = _small(values)
    assert small["qk_nope_head_dim"] + small["qk_rope_head_dim"] == small["qk_head_dim"]
    assert small["qk_head_dim"] <= 24


def test_a_picture_of_a_few_patches() -> None:
    small = _small({"image_size": 224, "patch_size": 16, "hidden_size": 768, "num_patches": 196})
    assert (small["image_size"], small["patch_size"], small["num_patches"]) == (64, 16, 16)


def test_patches_that_are_another_part_s_images() -> None:
    inner = {"model_type": "a", "image_size": 384, "patch_size": 16, "hidden_size": 768}
    small = _small({"patch_size": 384, "image_model_config": inner})
    assert (small["patch_size"], small["image_model_config"]["image_size"]) == (64, 64)


def test_finer_maps_of_features_stay_as_many_times_finer() -> None:
    sizes = [[288, 288], [144, 144], [72, 72]]
    small = _small({"image_size": 1008, "patch_size": 14, "backbone_feature_sizes": sizes})
    assert small["image_size"] == 56
    assert small["backbone_feature_sizes"] == [[16, 16], [8, 8], [4, 4]]


def test_the_size_of_an_input_that_is_a_width() -> None:
    small = _small({"hidden_size": 1024, "adapter_input_size": 1024, "num_attention_heads": 8})
    assert small["adapter_input_size"] == small["hidden_size"] == 32


def test_a_window_of_windows_holds_as_many() -> None:
    small = _small({"n_window": 50, "n_window_infer": 800})
    assert small == {"n_window": 4, "n_window_infer": 64}


def test_experts_and_their_groups() -> None:
    values = {"n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4}
    assert _small(values) == {
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
    }


def test_what_is_undone_stays() -> None:
    new = smaller(LLAMA, variant=0, undone=frozenset({"widths", "num_attention_heads"}), wider=0)
    small = replaced(LLAMA, new)
    assert small["hidden_size"] == 4096
    assert small["num_attention_heads"] == 32
