"""What configs say, by the table of aliases and by prefixes."""

from __future__ import annotations

from typing import Any

from mha_lint.dims.config import sections


def said(config: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {s.name: s.values for s in sections(config)}


def test_aliases_of_many_configs() -> None:
    assert said({"n_embd": 768, "n_head": 12}) == {"": {"h": 12, "d_model": 768}}
    assert said(
        {"dim": 4096, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8, "head_dim": 128}
    ) == {"": {"h": 32, "h_kv": 8, "d_k": 128, "d_model": 4096}}


def test_nested_parts_are_sections_of_their_own() -> None:
    config = {
        "text_config": {"hidden_size": 4096, "num_attention_heads": 32},
        "vision_config": {"hidden_size": 1024, "num_attention_heads": 16},
        "rope_parameters": {"rope_theta": 1e4},
    }
    assert said(config) == {
        "text_config": {"h": 32, "d_model": 4096},
        "vision_config": {"h": 16, "d_model": 1024},
    }


def test_a_part_for_attention_completes_its_section() -> None:
    config = {"d_model": 4096, "n_heads": 32, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8}}
    assert said(config) == {"": {"h": 32, "h_kv": 8, "d_model": 4096}}


def test_prefixes_make_variants() -> None:
    config = {"d_model": 768, "encoder_attention_heads": 12, "decoder_attention_heads": 8}
    assert said(config) == {
        "encoder": {"h": 12, "d_model": 768},
        "decoder": {"h": 8, "d_model": 768},
    }
    swa = {"hidden_size": 64, "num_attention_heads": 8, "head_dim": 8, "swa_head_dim": 16}
    assert said(swa)["swa"] == {"h": 8, "d_k": 16, "d_model": 64}


def test_one_layer_may_be_stated_apart() -> None:
    config = {
        "hidden_size": 64,
        "num_attention_heads": 8,
        "head_dim": 8,
        "per_layer_config": {"05": {"head_dim": 16}},
    }
    (override,) = [s for s in sections(config) if s.layer is not None]
    assert (override.layer, override.values["d_k"], override.values["h"]) == (5, 16, 8)


def test_indexers_and_recurrences_are_no_attention() -> None:
    config = {
        "num_attention_heads": 8,
        "index_n_heads": 4,
        "mamba_n_heads": 2,
        "linear_num_heads": 3,
    }
    assert list(said(config)) == [""]


def test_nonsense_is_no_size() -> None:
    assert said({"num_attention_heads": "8", "hidden_size": None, "head_dim": True}) == {}
