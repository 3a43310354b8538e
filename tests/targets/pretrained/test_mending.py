"""Parts of a config made to fit."""

from __future__ import annotations

from typing import Any

from mha_lint.targets.pretrained.mending import Mend, joined, mended, rotary

SMALL: dict[str, Any] = {
    "text_config": {"model_type": "t", "hidden_size": 160, "num_attention_heads": 4},
    "vision_config": {"model_type": "v", "hidden_size": 24, "intermediate_size": 176},
}
PATH = ("vision_config", "intermediate_size")


def test_a_width_follows_what_another_part_delivers() -> None:
    error = "mat1 and mat2 shapes cannot be multiplied (8x96 and 176x128)"
    assert list(joined(error, SMALL)) == [Mend(sizes=((PATH, 96),))]
    assert mended(SMALL, joined(error, SMALL))["vision_config"]["intermediate_size"] == 96


def test_sizes_that_stand_for_many_things_are_left_alone() -> None:
    error = "expected input[2, 3, 8, 8] to have 1 channels, but got 3 channels instead"
    assert list(joined(error, {"model_type": "m", "hidden_size": 3, "groups": 1})) == []


def test_sections_in_the_shares_that_the_code_falls_back_to() -> None:
    values = {
        "model_type": "t", "hidden_size": 80, "num_attention_heads": 4,
        "rope_parameters": {"rope_type": "default"},
    }  # fmt: skip
    code = 'config.rope_parameters.get("mrope_section", [22, 22, 20])'
    assert list(rotary(code, values)) == [Mend(sections=(3, 3, 4))]
    assert list(rotary('rope.get("mrope_section")', values)) == [Mend(sections=(4, 3, 3))]
    assert list(rotary("self.head_dim", values)) == []
    small = mended(values, rotary(code, values))
    assert small["rope_parameters"]["mrope_section"] == [3, 3, 4]
