"""Values for what a config leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from mha_lint.targets.pretrained.filling import (
    filled,
    has_timm,
    missing_keys,
    names_of_keys,
    without_timm,
)

transformers = pytest.importorskip("transformers")


def test_tokens_differ_from_each_other() -> None:
    values = {"model_type": "m", "image_token_id": None, "video_token_id": None, "pad_token_id": 4}
    small = filled(values, frozenset({"image_token_id", "video_token_id"}))
    assert (small["image_token_id"], small["video_token_id"]) == (5, 6)


def test_a_token_that_a_config_has_not() -> None:
    asked = missing_keys("'BertConfig' object has no attribute 'vision_start_token_id'")
    assert asked == {"BertConfig.vision_start_token_id"}
    values: dict[str, Any] = {"model_type": "m", "text_config": {"model_type": "bert"}}
    small = filled(values, asked)
    assert small["text_config"]["vision_start_token_id"] == 4
    assert "vision_start_token_id" not in small


@pytest.mark.parametrize(
    "error",
    ["'BertConfig' object has no attribute 'dropout'", "'Bert' object has no attribute 'a_token'"],
)
def test_nothing_else_is_made_up(error: str) -> None:
    assert missing_keys(error) == frozenset()


def test_names_by_which_code_asks_for_a_key() -> None:
    config = transformers.CONFIG_MAPPING["gpt2"]()
    names = names_of_keys(config, config.to_dict())
    assert names["n_embd"] == {"n_embd", "hidden_size"}
    assert names["vocab_size"] == {"vocab_size"}


def test_a_backbone_of_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"backbone_config": {"model_type": "timm_backbone", "out_indices": [1, 2]}}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    other = without_timm(values)
    assert has_timm(values) and not has_timm(other)
    assert other["backbone_config"]["model_type"] == "resnet"
