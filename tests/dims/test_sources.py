"""What may be named: files, an index of shards, folders, slices; and what is said of the rest."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from mha_lint.dims.data import SourceError
from mha_lint.dims.diagnose import diagnose

Shapes = dict[str, tuple[int, ...]]


def layer(i: int, q: int = 64, kv: int = 16, width: int = 64) -> Shapes:
    at = f"layers.{i}.self_attn."
    return {
        f"{at}q_proj.weight": (q, width),
        f"{at}k_proj.weight": (kv, width),
        f"{at}v_proj.weight": (kv, width),
        f"{at}o_proj.weight": (width, q),
    }


CONFIG = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1}


def index(folder: Path, shards: dict[str, Shapes]) -> Path:
    path = folder / "model.safetensors.index.json"
    names = {n: shard for shard, shapes in shards.items() for n in shapes}
    path.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return path


SHARDS = {
    "model-00001-of-00002.safetensors": layer(0),
    "model-00002-of-00002.safetensors": layer(1),
}


def test_a_folder_with_config_index_and_shards(workshop: Any) -> None:
    workshop.config(**CONFIG)
    index(workshop.folder, SHARDS)
    for name, shapes in SHARDS.items():
        workshop.tensors(shapes, name)
    report = diagnose([workshop.folder])
    assert [(g.where, g.count, g.status) for g in report.groups] == [
        ("layers.0-1.self_attn", 2, "solved")
    ]
    assert [Path(s.path).name for s in report.sources] == [
        "config.json",
        "model.safetensors.index.json",
        *SHARDS,
    ]
    assert report.contradictions == []


def test_a_missing_shard_is_said(workshop: Any) -> None:
    path = index(workshop.folder, SHARDS)
    workshop.tensors(layer(0), "model-00001-of-00002.safetensors")
    report = diagnose([path])
    assert report.notes[0] == (
        "model.safetensors.index.json: 1 of 2 shards are not here (model-00002-of-00002.safetensors): the "
        "shapes of 4 of 8 tensors are unknown"
    )
    assert [g.where for g in report.groups] == ["layers.0.self_attn"]


def test_an_index_without_any_shard_finds_nothing(workshop: Any) -> None:
    report = diagnose([index(workshop.folder, SHARDS)])
    assert (report.groups, report.exit_code) == ([], 2)


def test_a_damaged_shard_does_not_hide_the_others(workshop: Any) -> None:
    path = index(workshop.folder, SHARDS)
    workshop.tensors(layer(0), "model-00001-of-00002.safetensors")
    (workshop.folder / "model-00002-of-00002.safetensors").write_bytes(b"junk")
    report = diagnose([path])
    assert [g.where for g in report.groups] == ["layers.0.self_attn"]
    assert any("no safetensors file: 4 bytes" in n for n in report.notes)


def test_an_index_does_not_lead_out_of_its_folder(workshop: Any) -> None:
    path = index(workshop.folder, {"../secret.safetensors": layer(0)})
    with pytest.raises(SourceError, match="outside its own folder"):
        diagnose([path])


def test_the_safe_one_of_two_formats_is_read(workshop: Any) -> None:
    workshop.config(**CONFIG)
    workshop.tensors(layer(0))
    (workshop.folder / "pytorch_model.bin").write_bytes(b"junk")
    report = diagnose([workshop.folder])
    assert report.exit_code == 0
    assert any(n.endswith("not read as well: pytorch_model.bin") for n in report.notes)


def test_a_folder_with_a_torch_checkpoint(workshop: Any) -> None:
    workshop.config(**CONFIG)
    state = {n: torch.zeros(s) for n, s in layer(0).items()}
    torch.save({"model": state}, workshop.folder / "last.pt")
    (group,) = diagnose([workshop.folder]).groups
    assert (group.status, group.sizes["h"], group.sizes["h_kv"]) == ("solved", 4, 1)


def test_model_parallel_slices_are_joined(workshop: Any) -> None:
    workshop.config("params.json", dim=64, n_heads=4, n_kv_heads=2)
    part = {
        "layers.0.attention.wq.weight": (32, 64),
        "layers.0.attention.wk.weight": (16, 64),
        "layers.0.attention.wv.weight": (16, 64),
        "layers.0.attention.wo.weight": (64, 32),
    }
    for i in range(2):
        workshop.tensors(part, f"consolidated.0{i}.safetensors")
    report = diagnose([workshop.folder])
    (group,) = report.groups
    assert report.contradictions == []
    assert group.sizes == {"d_model": 64, "h": 4, "h_kv": 2, "d_k": 16, "d_v": 16}
    assert any("2 model-parallel slices" in n for n in report.notes)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("config.json", b"{", "no JSON"),
        ("config.json", b"[" * 100_000, "no JSON"),
        ("config.json", b"[1]", "no JSON object"),
        ("model.safetensors.index.json", b"{}", "no weight_map"),
        ("notes.txt", b"", "unknown kind of file"),
        ("model.safetensors", b"", "no safetensors file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(SourceError, match=reason) as caught:
        diagnose([path])
    assert str(path) in str(caught.value)


def test_an_empty_folder_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"holds no config\.json"):
        diagnose([tmp_path])
    with pytest.raises(SourceError, match="no such file"):
        diagnose([tmp_path / "nothing.json"])


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "model.pt", "a.index.json"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(SourceError) as caught:
        diagnose([tmp_path / name])
    reason = "no regular file, but a folder, pipe, socket or device"
    assert str(caught.value) == f"{tmp_path / name}: {reason}"


@pytest.mark.parametrize("shard", ["n" * 300, "a\0b", "a\nb"])
def test_a_shard_that_no_file_can_be_is_missing(tmp_path: Path, shard: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"q": shard}}))
    (note,) = diagnose([path]).notes[:1]
    assert "1 of 1 shards are not here" in note and note.isprintable()


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'\xef\xbb\xbf{"hidden_size": 64, "num_attention_heads": 4}')
    (group,) = diagnose([path]).groups
    assert group.sizes["d_k"] == 16


def test_names_of_a_file_cannot_write_lines_of_ours(workshop: Any) -> None:
    name = "a\nno contradictions\x1b[31m"
    report = workshop.diagnose(
        {f"x\n{name}_num_attention_heads": 8, "hidden_size": 64, "num_attention_heads": 0},
        {f"{name}.attn.q_proj.weight": (64, 64), f"{name}.attn.k_proj.weight": (24, 64)},
    )
    told = [*report.notes, *(c.message for c in report.contradictions)]
    told += [g.where for g in report.groups]
    assert told and all(text.isprintable() for text in told)
