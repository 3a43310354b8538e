"""torch's own attention modules record as plain operations, in all their settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from mha_lint.capture import Recording

Recorded = Callable[..., Recording]


def names(recording: Recording) -> list[str]:
    return [n.meta["op"] for n in recording.graph.nodes]


def laid_out(x: torch.Tensor, batch_first: bool) -> torch.Tensor:
    return x if batch_first else x.transpose(0, 1).contiguous()


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_multihead_attention(
    batch_first: bool, need_weights: bool, train: bool, recorded: Recorded
) -> None:
    module = nn.MultiheadAttention(16, 4, batch_first=batch_first, dropout=0.1).train(train)
    x, y = (laid_out(torch.randn(2, t, 16), batch_first) for t in (5, 7))
    keys = torch.zeros(2, 7, dtype=torch.bool)
    keys[1, 4:] = True
    recording = recorded(module, x, y, y, key_padding_mask=keys, need_weights=need_weights)
    found = names(recording)
    assert found.count("softmax") == 1
    assert found.count("dropout") == int(train)
    assert recording.input_names == ("query", "key", "key_padding_mask")
    assert set(recording.parameters) == {
        "in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias",
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    ("build", "softmaxes", "inputs"),
    [
        (lambda b: nn.TransformerEncoderLayer(16, 4, 32, batch_first=b), 1, 1),
        (lambda b: nn.TransformerDecoderLayer(16, 4, 32, batch_first=b), 2, 2),
        (lambda b: nn.Transformer(16, 4, 1, 1, 32, batch_first=b), 3, 2),
    ],
    ids=["encoder layer", "decoder layer", "transformer"],
)
def test_transformer(
    build: Callable[[bool], Any], softmaxes: int, inputs: int, train: bool, batch_first: bool,
    recorded: Recorded,
) -> None:  # fmt: skip
    args = [laid_out(torch.randn(2, t, 16), batch_first) for t in (5, 7)][:inputs]
    recording = recorded(build(batch_first).train(train), *args)
    assert names(recording).count("softmax") == softmaxes
    dropped = [n.kwargs["training"] for n in recording.graph.nodes if n.meta["op"] == "dropout"]
    assert set(dropped) == {train}


def test_encoder_with_padding(recorded: Recorded) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    keys = torch.zeros(2, 5, dtype=torch.bool)
    keys[1, 3:] = True
    recording = recorded(
        nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 5, 16), src_key_padding_mask=keys
    )
    assert names(recording).count("softmax") == 2
