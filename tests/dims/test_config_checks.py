"""What a config says against itself, and what is unusual but legal."""

from __future__ import annotations

import time
from typing import Any

import pytest

BASE = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "rope_theta": 1e4}
LATENT = {
    "hidden_size": 5120,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}

WRONG: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "heads": (
        {"hidden_size": 4096, "num_attention_heads": 30},
        "config hidden_size = 4096 is not divisible by config num_attention_heads = 30: 4096 = 30 x 136 + 16, "
        "and no head_dim is stated; the nearest head counts that divide it are 16 and 32",
        ("config hidden_size", "config num_attention_heads"),
    ),
    "groups": (
        BASE | {"num_key_value_heads": 12},
        "config num_attention_heads = 32 is not divisible by config num_key_value_heads = 12 (remainder 8): the "
        "query heads cannot be shared evenly among the key/value heads",
        ("config num_attention_heads", "config num_key_value_heads"),
    ),
    "zero": (
        BASE | {"num_key_value_heads": 0},
        "config num_key_value_heads = 0: it must be positive",
        ("config num_key_value_heads",),
    ),
    "two names": (
        BASE | {"n_head": 16},
        "the config says num_attention_heads = 32 and n_head = 16: both mean num_heads",
        ("config num_attention_heads", "config n_head"),
    ),
    "odd head_dim": (
        BASE | {"head_dim": 127},
        "head_dim = 127 (config head_dim) is odd: rotary embedding turns channels in pairs",
        ("config head_dim",),
    ),
    "odd share": (
        BASE | {"partial_rotary_factor": 0.35, "head_dim": 100},
        "config partial_rotary_factor = 0.35 of head_dim = 100 (config head_dim) is 35, which is odd: rotary "
        "embedding turns channels in pairs",
        ("config partial_rotary_factor", "config head_dim"),
    ),
    "too large a share": (
        BASE | {"rotary_pct": 1.5},
        "config rotary_pct = 1.5 of head_dim = 128 (config hidden_size / num_attention_heads) is 192, more than "
        "the head holds",
        ("config rotary_pct", "config hidden_size / num_attention_heads"),
    ),
    "too large a width": (
        {"n_embd": 4096, "n_head": 16, "rotary_dim": 320},
        "config rotary_dim = 320 is larger than head_dim = 256 (config n_embd / n_head)",
        ("config rotary_dim", "config n_embd / n_head"),
    ),
    "odd width": (
        {"n_embd": 4096, "n_head": 16, "rotary_dim": 63},
        "config rotary_dim = 63 is odd: rotary embedding turns channels in pairs",
        ("config rotary_dim",),
    ),
    "sections": (
        BASE | {"rope_scaling": {"mrope_section": [16, 24, 20]}},
        "config rope_scaling.mrope_section = [16, 24, 20] turns 2 x 60 = 120 channels, head_dim is 128 (config "
        "hidden_size / num_attention_heads)",
        ("config rope_scaling.mrope_section", "config hidden_size / num_attention_heads"),
    ),
    "latent, odd": (
        LATENT | {"qk_rope_head_dim": 63},
        "config qk_rope_head_dim = 63 is odd: rotary embedding turns channels in pairs",
        ("config qk_rope_head_dim",),
    ),
    "latent, sum": (
        LATENT | {"qk_head_dim": 128},
        "config qk_nope_head_dim = 128 and config qk_rope_head_dim = 64 add up to 192, config qk_head_dim = 128",
        ("config qk_nope_head_dim", "config qk_rope_head_dim", "config qk_head_dim"),
    ),
    "nested": (
        {"text_config": {"hidden_size": 100, "num_attention_heads": 7}},
        "config text_config.hidden_size = 100 is not divisible by config text_config.num_attention_heads = 7: "
        "100 = 7 x 14 + 2, and no head_dim is stated; the nearest head counts that divide it are 5 and 10",
        ("config text_config.hidden_size", "config text_config.num_attention_heads"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_config_contradicts_itself(name: str, workshop: Any) -> None:
    config, message, sources = WRONG[name]
    report = workshop.diagnose(config, None)
    assert (message, sources) in [(c.message, c.sources) for c in report.contradictions]
    assert report.exit_code == 1


@pytest.mark.parametrize(
    "config",
    [
        BASE,
        LATENT,
        LATENT | {"num_key_value_heads": 128, "head_dim": 64},
        BASE | {"partial_rotary_factor": 0.5},
        BASE | {"rope_scaling": {"mrope_section": [16, 24, 24]}},
        {"embed_dim": 96, "num_heads": [3, 6, 12, 24], "depths": [2, 2, 6, 2], "hidden_size": 768},
        {"hidden_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256},
        {"hidden_size": 45, "num_attention_heads": 3},
    ],
)
def test_a_legal_config_is_left_alone(config: dict[str, Any], workshop: Any) -> None:
    assert workshop.diagnose(config, None).contradictions == []


def test_wide_heads_are_a_note_only(workshop: Any) -> None:
    config = {"hidden_size": 3072, "num_attention_heads": 16, "head_dim": 256}
    report = workshop.diagnose(config, None)
    assert report.exit_code == 0
    assert report.notes == [
        "config head_dim = 256 and config num_attention_heads = 16: heads are 16 x 256 = 4096 wide in all, "
        "d_model is 3072; that is legal, q_proj and o_proj are then not square"
    ]


def test_a_config_without_heads_finds_nothing(workshop: Any) -> None:
    assert workshop.diagnose({"hidden_size": 64}, None).exit_code == 2


@pytest.mark.parametrize(
    "more",
    [
        {"partial_rotary_factor": float("inf")},
        {"partial_rotary_factor": float("nan")},
        {"partial_rotary_factor": 1e308},
        {"rotary_dim": 10**4000},
        {"rope_scaling": {"mrope_section": [10**4299] * 12}},
        {"per_layer_config": {"²": {"num_attention_heads": 4}}},
        {"per_layer_config": {"9" * 5000: {"num_attention_heads": 4}}},
        {"n_head": 10**4000},
    ],
    ids=["inf", "nan", "large", "width", "sections", "no digit", "digits", "heads"],
)
def test_numbers_that_mean_nothing_say_nothing(more: dict[str, Any], workshop: Any) -> None:
    report = workshop.diagnose(BASE | more, None)
    assert report.contradictions == []
    assert report.groups[0].sizes["h"] == 32


@pytest.mark.parametrize("width", [10**30, (1 << 61) - 1, 10**4000])
def test_a_width_without_measure_is_none(width: int, workshop: Any) -> None:
    started = time.process_time()
    report = workshop.diagnose({"hidden_size": width, "num_attention_heads": 6}, None)
    assert [(g.status, g.sizes.get("d_model")) for g in report.groups] == [("open", None)]
    assert time.process_time() - started < 1
