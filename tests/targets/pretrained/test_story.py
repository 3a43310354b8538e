"""What an error tells of the library's code: tested on calls of transformers that fail."""

from __future__ import annotations

import pytest
import torch

from mha_lint.targets.pretrained.story import background, story, trail

transformers = pytest.importorskip("transformers")


def _error() -> Exception:
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    model = transformers.BertModel(config)
    with pytest.raises(IndexError) as caught:
        model(input_ids=torch.full((1, 3), 99))
    return caught.value


def test_the_lines_that_an_error_passed_through() -> None:
    error = _error()
    told = story(error)
    assert told.startswith(str(error))
    assert "self.word_embeddings(input_ids)" in told


def test_the_code_before_the_error_and_where_its_attributes_are_set() -> None:
    told = background(_error())
    assert "nn.Embedding(config.vocab_size" in told
    assert "def forward" in told


def test_a_later_line_is_further() -> None:
    lines = trail(_error())
    assert len(lines) >= 2
    assert lines < (lines[0] + 1,)
