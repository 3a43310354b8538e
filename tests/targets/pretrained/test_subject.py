"""The model of a config as a subject: small ones that can be made again, and the whole."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

from mha_lint.model.target import TargetSpec
from mha_lint.targets.large import WithoutLarge, is_large
from mha_lint.targets.make import StageError
from mha_lint.targets.pretrained import shrunk
from mha_lint.targets.pretrained.subject import ConfigMaker, whole
from mha_lint.targets.subject import Recipe

SPEC = TargetSpec(text="config.json")


def config() -> transformers.PretrainedConfig:
    made: transformers.PretrainedConfig = transformers.LlamaConfig(
        hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8
    )
    return made


@pytest.fixture(scope="module")
def maker() -> ConfigMaker:
    return ConfigMaker(SPEC, config(), shrunk(config()))


def output(module: object, kwargs: dict[str, object]) -> torch.Tensor:
    assert isinstance(module, nn.Module)
    with torch.no_grad():
        found: torch.Tensor = module(**kwargs)[0]
    return found


def test_it_is_made_again_with_the_same_weights(maker: ConfigMaker) -> None:
    first = maker.first()
    again = first.rebuilt()
    assert again.module is not first.module
    one, two = output(first.module, first.kwargs), output(again.module, again.kwargs)
    assert torch.equal(one, two)


def test_its_call_is_nobodys(maker: ConfigMaker) -> None:
    first = maker.first()
    (other,) = first.resized()
    assert [s.real for s in (first, first.rebuilt(), other)] == [False, False, False]
    assert first.how == "stated"


def test_the_second_size_differs_in_heads_width_and_length(maker: ConfigMaker) -> None:
    first = maker.first()
    (other,) = first.resized()
    for name in ("num_attention_heads", "hidden_size"):
        assert first.sizes[name] != other.sizes[name]
    assert first.kwargs["input_ids"].shape[1] != other.kwargs["input_ids"].shape[1]


def test_another_build_is_refused(maker: ConfigMaker) -> None:
    with pytest.raises(StageError, match="the config makes the model"):
        maker.make(Recipe("GPT2()", ""))
    with pytest.raises(StageError, match="the config makes the model"):
        maker.build("GPT2()")


def test_the_whole_has_its_own_sizes_and_no_weights(maker: ConfigMaker) -> None:
    mode = WithoutLarge()
    subject = whole(SPEC, maker.config, maker.small, mode)
    assert isinstance(subject.module, nn.Module) and is_large(subject.module)
    shapes = {n: tuple(p.shape) for n, p in subject.module.named_parameters()}
    assert shapes["layers.31.self_attn.k_proj.weight"] == (1024, 4096)
    with subject.environment(), mode:
        assert tuple(subject.module(**subject.kwargs)[0].shape)[-1] == 4096
    with pytest.raises(StageError, match="too large"):
        subject.rebuilt()


def test_a_part_is_made_again_and_has_its_own_size_in_the_whole() -> None:
    made = transformers.BarkConfig()
    maker = ConfigMaker(SPEC, made, shrunk(made))
    first = maker.first()
    again = first.rebuilt()
    assert type(first.module) is type(again.module)
    assert "codec" not in maker.small.part
    mode = WithoutLarge()
    subject = whole(SPEC, made, maker.small, mode)
    assert type(subject.module) is type(first.module)
    with subject.environment(), mode:
        subject.module(**subject.kwargs)
