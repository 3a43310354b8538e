"""Configs read from files: those of transformers, and those that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mha_lint.model.report import NotChecked
from mha_lint.targets.pretrained import model_class, read_config

pytest.importorskip("transformers")


def _written(folder: Path, values: Any) -> Path:
    path = folder / "config.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")
    return path


def test_a_known_type(tmp_path: Path) -> None:
    values = {"model_type": "llama", "hidden_size": 64, "architectures": ["LlamaForCausalLM"]}
    config = read_config(_written(tmp_path, values))
    assert (config.model_type, config.hidden_size) == ("llama", 64)
    assert model_class(config).__name__ == "LlamaForCausalLM"


def test_the_plain_model_where_no_class_is_named(tmp_path: Path) -> None:
    config = read_config(_written(tmp_path, {"model_type": "bert"}))
    assert model_class(config).__name__ == "BertModel"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"auto_map": {"AutoModel": "m.M"}, "model_type": "mine"}, "auto_map"),
        ({"model_type": "no_such_model"}, 'no model type "no_such_model"'),
        ({"hidden_size": 3}, 'no "model_type"'),
        ([1], "no JSON object"),
        ("{", "is not JSON"),
    ],
)
def test_why_a_config_is_not_read(tmp_path: Path, values: Any, reason: str) -> None:
    failure = read_config(_written(tmp_path, values))
    assert isinstance(failure, NotChecked)
    assert reason in failure.reason


def test_a_missing_file(tmp_path: Path) -> None:
    failure = read_config(tmp_path / "config.json")
    assert isinstance(failure, NotChecked)
    assert "cannot read" in failure.reason
