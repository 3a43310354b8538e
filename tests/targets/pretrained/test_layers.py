"""A few layers of every kind, and what names layers."""

from __future__ import annotations

from typing import Any

from mha_lint.targets.pretrained.layers import fewer_layers

NOTHING: frozenset[str] = frozenset()


def test_a_plain_stack_keeps_two() -> None:
    assert fewer_layers({"num_hidden_layers": 126}, NOTHING) == {"num_hidden_layers": 2}


def test_one_layer_of_each_kind_stays() -> None:
    kinds = (["sliding_attention"] * 5 + ["full_attention"]) * 4
    small = fewer_layers({"num_hidden_layers": 24, "layer_types": kinds}, NOTHING)
    assert small == {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}


def test_two_lists_keep_each_pair_of_kinds() -> None:
    values = {
        "num_hidden_layers": 8,
        "layer_types": ["a", "b"] * 4,
        "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 6,
    }
    assert fewer_layers(values, NOTHING) == {
        "num_hidden_layers": 4,
        "layer_types": ["a", "b", "a", "b"],
        "mlp_layer_types": ["dense", "dense", "sparse", "sparse"],
    }


def test_a_list_of_flags_is_no_list_of_indices() -> None:
    values = {"num_hidden_layers": 8, "no_rope_layers": [1, 1, 1, 0] * 2}
    small = fewer_layers(values, NOTHING)
    assert small == {"num_hidden_layers": 2, "no_rope_layers": [1, 0]}


def test_indices_move_with_their_layers() -> None:
    values = {"num_hidden_layers": 12, "global_attn_indexes": [2, 5, 8, 11]}
    assert fewer_layers(values, NOTHING) == {"num_hidden_layers": 2, "global_attn_indexes": [1]}


def test_features_are_taken_at_as_many_layers_as_before() -> None:
    values = {"num_hidden_layers": 12, "out_indices": [3, 6, 9, 12], "out_features": ["stage3"]}
    small = fewer_layers(values, NOTHING)
    assert small["out_indices"] == [1, 2, 3, small["num_hidden_layers"]]
    assert "out_features" not in small


def test_dense_layers_come_before_sparse_ones() -> None:
    values = {"num_hidden_layers": 61, "first_k_dense_replace": 3}
    assert fewer_layers(values, NOTHING) == {"num_hidden_layers": 2, "first_k_dense_replace": 1}


def test_periods_become_two() -> None:
    values = {"num_hidden_layers": 32, "attn_layer_period": 8, "attn_layer_offset": 4}
    small = fewer_layers(values, NOTHING)
    assert small == {"num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1}


def test_each_part_has_its_own_layers() -> None:
    values: dict[str, Any] = {
        "text_config": {"model_type": "a", "num_hidden_layers": 40},
        "vision_config": {"model_type": "b", "num_hidden_layers": 1},
    }
    small = fewer_layers(values, NOTHING)
    assert small["text_config"]["num_hidden_layers"] == 2
    assert small["vision_config"]["num_hidden_layers"] == 1


def test_indices_into_the_layers_of_a_part_below() -> None:
    values: dict[str, Any] = {
        "num_head_layers": 2,
        "intermediate_hook_ids": [11, 5],
        "image_config": {"model_type": "a", "num_hidden_layers": 12},
    }
    small = fewer_layers(values, NOTHING)
    assert small["image_config"]["num_hidden_layers"] == 2
    assert small["intermediate_hook_ids"] == [1, 0]


def test_layers_that_are_left_alone() -> None:
    values = {"num_hidden_layers": 12}
    assert fewer_layers(values, frozenset({"layers"})) == values
