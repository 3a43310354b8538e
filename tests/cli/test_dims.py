"""``mha-lint dims`` from the command line: text, JSON, exit codes, and no torch for headers."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine

CONFIG = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "head_dim": 128,
}


SHAPES = {
    "q_proj": (4096, 4096),
    "k_proj": (1024, 4096),
    "v_proj": (1024, 4096),
    "o_proj": (4096, 4096),
}


def write_checkpoint(path: Path) -> None:
    header: dict[str, object] = {}
    begin = 0
    for layer in range(2):
        for name, (rows, columns) in SHAPES.items():
            end = begin + 2 * rows * columns
            header[f"layers.{layer}.self_attn.{name}.weight"] = {
                "dtype": "F16",
                "shape": [rows, columns],
                "data_offsets": [begin, end],
            }
            begin = end
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


@pytest.fixture
def sources(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_checkpoint(folder / "model.safetensors")
    return folder


TEXT = """\
config.json  config, 4 keys
model.safetensors  checkpoint, 8 tensors; header only, without data

  attention             layers  d_model  h  h_kv  d_k  d_v  projections  verdict
  layers.0-1.self_attn       2     4096  -     -    -    -  separate     contradictory

contradiction  layers.0-1.self_attn
  q_proj.weight (4096, 4096) and k_proj.weight (1024, 4096): with head_dim 128 that is 32 query and
  8 key/value heads, the config says num_key_value_heads = 32
  from   k_proj.weight; config num_key_value_heads; config head_dim

1 contradiction in 2 attention modules
"""


def test_a_contradiction_is_printed_with_its_numbers(mha_lint: CommandLine, sources: Path) -> None:
    outcome = mha_lint("dims", "config.json", "model.safetensors")
    assert (outcome.code, outcome.out, outcome.err) == (1, TEXT, "")


def test_json(mha_lint: CommandLine, sources: Path) -> None:
    outcome = mha_lint("dims", ".", "--format", "json")
    found = json.loads(outcome.out)
    assert outcome.code == 1
    assert found["contradictions"][0]["where"] == "layers.0-1.self_attn"


def test_consistent_sources_end_with_0(mha_lint: CommandLine, sources: Path) -> None:
    config = CONFIG | {"num_key_value_heads": 8}
    (sources / "config.json").write_text(json.dumps(config))
    outcome = mha_lint("dims", "config.json", "model.safetensors", "-q")
    assert outcome.code == 0
    assert (
        "  layers.0-1.self_attn       2     4096  32     8  128  128  separate     consistent"
        in outcome.out
    )
    assert outcome.out.endswith("no contradictions in 2 attention modules\n")


def test_what_cannot_be_read_ends_with_2(mha_lint: CommandLine, folder: Path) -> None:
    missing = mha_lint("dims", "nothing.json")
    assert (missing.code, missing.err) == (2, "mha-lint: nothing.json: no such file or folder\n")
    (folder / "bad.safetensors").write_bytes(b"abc")
    assert mha_lint("dims", "bad.safetensors").code == 2
    (folder / "config.json").write_text("{}")
    nothing = mha_lint("dims", "config.json")
    assert (nothing.code, nothing.out.splitlines()[-1]) == (2, "no attention projections found")


def test_headers_are_read_without_torch(sources: Path) -> None:
    program = (
        "import sys; from mha_lint.cli.main import run; "
        "code = run(['dims', '.']); print(code, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=sources, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "1 False"
