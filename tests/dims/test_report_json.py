"""The JSON form holds its schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from mha_lint.dims import report_json

SHAPES = {
    f"layers.{i}.attn.{n}.weight": s
    for i in range(2)
    for n, s in {
        "q_proj": (64, 64),
        "k_proj": (16, 64),
        "v_proj": (16, 64),
        "o_proj": (64, 64),
    }.items()
}


@pytest.mark.parametrize(
    ("config", "shapes"),
    [
        ({"hidden_size": 64, "num_attention_heads": 4}, None),
        ({"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4}, SHAPES),
        (None, SHAPES),
        (None, {"embed.weight": (10, 64)}),
    ],
)
def test_any_report_holds_the_schema(workshop: Any, config: Any, shapes: Any) -> None:
    text = report_json.render(workshop.diagnose(config, shapes))
    jsonschema.validate(json.loads(text), json.loads(report_json.SCHEMA.read_text()))


def test_the_numbers_stand_under_their_names(workshop: Any) -> None:
    config = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    found = json.loads(report_json.render(workshop.diagnose(config, SHAPES)))
    assert found["exit_code"] == 1
    assert found["contradictions"][0]["sources"] == [
        "q_proj.weight",
        "k_proj.weight",
        "config num_attention_heads",
        "config num_key_value_heads",
    ]
    right = json.loads(
        report_json.render(workshop.diagnose(config | {"num_key_value_heads": 1}, SHAPES))
    )
    (group,) = right["attention"]
    assert (group["where"], group["num_heads"], group["num_kv_heads"], group["head_dim"]) == (
        "layers.0-1.attn",
        4,
        1,
        16,
    )
