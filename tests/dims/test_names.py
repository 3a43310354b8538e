"""Names of projections as people write them."""

from __future__ import annotations

import pytest

from mha_lint.dims.names import role_of, split_name

ROLES = {
    "q": "q_proj query Wq wq W_Q to_q q_lin linear_q project_q projection_query w_qs toqueries",
    "k": "k_proj key Wk to_k k_lin key_layer keys",
    "v": "v_proj value values linear_v",
    "qkv": "qkv Wqkv qkv_proj query_key_value",
    "kv": "kv_proj to_kv key_value keys_values",
    "qk": "query_key qk",
    "o": "o_proj out_proj to_out out_lin linear_out attention_out wo output proj_out",
    "o?": "proj c_proj dense projection",
    "joined?": "c_attn in_proj in_proj_weight att_proj",
    "q_norm": "q_norm q_layernorm norm_q query_layernorm",
    "q_a": "q_a_proj wq_a",
    "kv_a": "kv_a_proj_with_mqa wkv_a",
    "kv_b": "kv_b_proj",
    None: "gate_proj up_proj fc1 attention_weights q_a_layernorm lora_A embed_tokens ln_1",
}


@pytest.mark.parametrize(
    ("name", "role"), [(n, role) for role, names in ROLES.items() for n in names.split()]
)
def test_a_name_hints_at_a_role(name: str, role: str | None) -> None:
    assert role_of(name) == role


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.self_attn.q_proj.weight", ("a.self_attn", "q_proj", "q", "weight")),
        ("attention.output.dense.weight", ("attention", "output", "o", "dense.weight")),
        ("attention.output.LayerNorm.weight", None),
        ("in_proj_weight", ("", "in_proj_weight", "joined?", "weight")),
        ("a.attn.proj.weight", ("a.attn", "proj", "o?", "weight")),
        ("a.to_out.0.weight", ("a", "to_out", "o", "0.weight")),
        ("b.q_proj.lora_A.default.weight", ("b", "q_proj", "q", "lora_A.default.weight")),
        ("h.0.mlp.up_proj.weight", None),
    ],
)
def test_a_tensor_belongs_to_a_projection(
    name: str, expected: tuple[str, str, str, str] | None
) -> None:
    assert split_name(name) == expected
