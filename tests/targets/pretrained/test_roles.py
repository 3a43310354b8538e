"""What keys count, told by their names."""

from __future__ import annotations

import pytest

from mha_lint.targets.pretrained.roles import Role, role_of


@pytest.mark.parametrize(
    ("key", "role"),
    [
        ("hidden_size", Role.WIDTH),
        ("d_ff", Role.WIDTH),
        ("n_embd", Role.WIDTH),
        ("num_attention_heads", Role.HEADS),
        ("n_head", Role.HEADS),
        ("num_key_value_heads", Role.KV_HEADS),
        ("head_dim", Role.HEAD_DIM),
        ("qk_rope_head_dim", Role.HEAD_DIM),
        ("num_hidden_layers", Role.LAYERS),
        ("encoder_layers", Role.LAYERS),
        ("first_k_dense_replace", Role.THRESHOLD),
        ("attn_layer_period", Role.PERIOD),
        ("n_routed_experts", Role.EXPERTS),
        ("num_experts_per_tok", Role.CHOSEN),
        ("vocab_size", Role.VOCABULARY),
        ("image_token_id", Role.TOKEN),
        ("num_experts_per_token", Role.CHOSEN),
        ("merge_index", Role.THRESHOLD),
        ("sliding_window", Role.WINDOW),
        ("window_size", Role.TILE),
        ("image_size", Role.IMAGE),
        ("patch_size", Role.PATCH),
        ("max_position_embeddings", Role.POSITIONS),
        ("conv_kernel_size", Role.KEEP),
    ],
)
def test_the_role_of_a_key(key: str, role: Role) -> None:
    assert role_of(key, 1024) is role


def test_a_small_width_stays() -> None:
    assert role_of("stem_channels", 3, True) is Role.KEEP
    assert role_of("stem_channels", 48, True) is Role.WIDTH
