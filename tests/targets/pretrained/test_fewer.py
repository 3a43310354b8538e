"""A config with fewer layers and its own sizes."""

from __future__ import annotations

from transformers import Gemma3TextConfig, LlamaConfig

from mha_lint.targets.pretrained.fewer import with_fewer_layers


def test_only_the_layers_are_fewer() -> None:
    config = LlamaConfig(num_hidden_layers=126, hidden_size=16384, num_attention_heads=128)
    fewer = with_fewer_layers(config)
    assert fewer is not None
    assert fewer.num_hidden_layers == 2
    assert fewer.to_dict() | {"num_hidden_layers": 126} == config.to_dict()


def test_each_kind_of_layer_stays() -> None:
    config = Gemma3TextConfig(num_hidden_layers=12)
    fewer = with_fewer_layers(config)
    assert fewer is not None
    assert set(fewer.layer_types) == {"sliding_attention", "full_attention"}
    assert fewer.hidden_size == config.hidden_size


def test_there_may_be_none_fewer() -> None:
    assert with_fewer_layers(LlamaConfig(num_hidden_layers=2)) is None
