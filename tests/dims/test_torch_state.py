"""State dicts that torch saved: names and shapes; nothing but tensors is unpickled."""

from __future__ import annotations

import pickle
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import torch

from mha_lint.dims.data import SourceError
from mha_lint.dims.torch_state import read_state

WEIGHTS = {"q.weight": torch.zeros(8, 4), "q.bias": torch.zeros(8, dtype=torch.bfloat16)}
EXPECTED = {"q.weight": ((8, 4), "float32"), "q.bias": ((8,), "bfloat16")}


def shapes(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    return {n: (t.shape, t.dtype) for n, t in read_state(path)[0].items()}


@pytest.mark.parametrize("new_format", [True, False])
def test_a_state_dict_is_read(tmp_path: Path, new_format: bool) -> None:
    path = tmp_path / "a.pt"
    torch.save(WEIGHTS, path, _use_new_zipfile_serialization=new_format)
    assert shapes(path) == EXPECTED


@pytest.mark.parametrize("keys", [("state_dict",), ("model",), ("module", "state_dict")])
def test_a_nested_state_dict_is_found(tmp_path: Path, keys: tuple[str, ...]) -> None:
    saved: object = WEIGHTS
    for key in reversed(keys):
        saved = {"epoch": 3, key: saved, "lr": torch.tensor(0.1)}
    path = tmp_path / "a.ckpt"
    torch.save(saved, path)
    tensors, remark = read_state(path)
    assert {n: (t.shape, t.dtype) for n, t in tensors.items()} == EXPECTED
    assert remark == f"under '{'.'.join(keys)}'"


class Harmful:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_nothing_is_run_by_a_pickle(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    plain, saved = tmp_path / "plain.bin", tmp_path / "saved.pt"
    plain.write_bytes(pickle.dumps(Harmful(touched)))
    torch.save({"w": Harmful(touched)}, saved)
    for path in (plain, saved):
        with pytest.raises(SourceError, match="nothing else is unpickled"):
            read_state(path)
    assert not touched.exists()


def test_a_whole_module_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(SourceError, match="it holds more than tensors"):
        read_state(path)


@pytest.mark.parametrize("data", [b"", b"junk" * 50, b"PK\x03\x04" + bytes(50)])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"refused: not a file of torch\.save"):
        read_state(path)


def test_a_list_is_no_state_dict(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save([torch.zeros(2)], path)
    with pytest.raises(SourceError, match="holds a list, no state_dict"):
        read_state(path)


def test_an_archive_whose_parts_grow_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02]" + b"N0" * 5_000_000 + b".")
        archive.writestr("archive/version", "3\n")
    with pytest.raises(SourceError, match="its parts are compressed"):
        read_state(path)


def test_no_more_is_allocated_than_a_pickle_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    torch.save(WEIGHTS, path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    text = b"X\x10\x00\x00\x00protocol_version"
    assert text in data
    path.write_bytes(data.replace(text, b"X\xff\xff\xff\x7fprotocol_version"))
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match="refused"):
            read_state(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50 << 20


@pytest.mark.parametrize("archived", [True, False])
def test_a_pickle_that_asks_for_memory_by_a_number_is_refused(
    tmp_path: Path, archived: bool
) -> None:
    data = b"\x80\x02c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R."
    path = tmp_path / "a.pt"
    path.write_bytes(data)
    if archived:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", data)
            archive.writestr("archive/version", "3\n")
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match="refused: it holds more than tensors"):
            read_state(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50 << 20
