"""Small models that run: text, groups, hybrids, images, sound, images with text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mha_lint.targets.pretrained import build, inputs_of, parameter_count, shrunk

transformers = pytest.importorskip("transformers")


def _config(kind: str, **settings: Any) -> Any:
    return transformers.CONFIG_MAPPING[kind](**settings)


def test_a_decoder_with_grouped_heads() -> None:
    config = _config("llama", hidden_size=4096, num_attention_heads=32, num_key_value_heads=8)
    small = shrunk(config)
    assert small.config.num_hidden_layers == 2
    assert 1 < small.config.num_key_value_heads < small.config.num_attention_heads
    assert tuple(small.kwargs["input_ids"].shape) == (2, 7)
    assert not small.model.training
    assert config.hidden_size == 4096


def test_the_second_size() -> None:
    config = _config("gpt2")
    first, second = shrunk(config), shrunk(config, variant=1)
    assert first.config.n_embd != second.config.n_embd
    assert first.config.n_head != second.config.n_head
    assert tuple(second.kwargs["input_ids"].shape) == (2, 11)


def test_every_kind_of_layer_stays() -> None:
    small = shrunk(_config("gemma3_text"))
    assert small.config.layer_types == ["sliding_attention", "full_attention"]


def test_an_image_with_its_tokens_in_the_text() -> None:
    small = shrunk(_config("gemma3"))
    token = small.config.image_token_id
    assert int((small.kwargs["input_ids"] == token).sum()) > 0
    assert small.kwargs["pixel_values"].dim() == 4


@pytest.mark.parametrize("kind", ["vit", "swin", "whisper", "t5", "wav2vec2"])
def test_other_kinds_run(kind: str) -> None:
    small = shrunk(_config(kind))
    with torch.no_grad():
        small.model(*small.args, **small.kwargs)


def test_the_same_weights_and_inputs_each_time() -> None:
    small = shrunk(_config("bert"))
    again = build(small.config)
    _, kwargs = inputs_of(again, small.config)
    assert torch.equal(kwargs["input_ids"], small.kwargs["input_ids"])
    for one, other in zip(small.model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_parameters_are_counted_without_storage() -> None:
    config = _config("llama", num_hidden_layers=126, hidden_size=16384, intermediate_size=53248)
    assert (parameter_count(config) or 0) > 300_000_000_000


def test_what_cannot_be_built_is_told_from_what_needs_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = _config("bert", num_hidden_layers=1)

    def raising(error: Exception) -> None:
        def made(*_: Any) -> None:
            raise error

        monkeypatch.setattr("mha_lint.targets.pretrained.building._made", made)

    raising(RuntimeError("Tensor.item() cannot be called on meta tensors"))
    assert parameter_count(config) is None
    raising(KeyError("full_attention"))
    with pytest.raises(KeyError):
        parameter_count(config)


def test_fake_parameters() -> None:
    from torch._subclasses.fake_tensor import FakeTensor

    model = build(_config("bert", num_hidden_layers=1), device="fake")
    assert all(isinstance(p.data, FakeTensor) for p in model.parameters())


def test_tokens_for_images_that_the_config_leaves_open() -> None:
    small = shrunk(_config("blip-2"))
    assert small.config.image_token_index is not None
    assert small.notes[1:] == ("given a value, where the config has none: image_token_index",)


def test_several_codes_at_each_place() -> None:
    small = shrunk(_config("kyutai_speech_to_text"))
    books = small.config.num_codebooks
    assert tuple(small.kwargs["input_ids"].shape) == (2, 7, books + 1)


def test_shapes_from_the_docstring() -> None:
    small = shrunk(_config("inkling2_vision"))
    side = small.config.patch_size * small.config.spatial_merge_size
    assert tuple(small.kwargs["pixel_values"].shape[1:]) == (side, side, 3)


def test_a_part_where_the_whole_has_no_forward() -> None:
    small = shrunk(_config("bark"))
    assert small.part in ("semantic", "coarse_acoustics", "fine_acoustics")
    assert f"only its part {small.part} is called" in small.notes
    assert small.model.get_submodule("layers.0.attn") is not None
    part = build(small.config).get_submodule(small.part)
    with torch.no_grad():
        part(**small.kwargs)
