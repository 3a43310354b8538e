"""The header alone is read, and a hostile one is refused with a reason."""

from __future__ import annotations

import json
import struct
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mha_lint.dims.data import SourceError
from mha_lint.dims.safetensors_header import read_header


def packed(header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def entry(**changed: Any) -> dict[str, Any]:
    return {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]} | changed


def test_a_file_without_data_is_read(tmp_path: Path, make_header: Callable[..., bytes]) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(make_header({"q.weight": (4096, 4096), "norm": (4096,), "scalar": ()}))
    tensors, remark = read_header(path)
    assert {n: (t.shape, t.dtype) for n, t in tensors.items()} == {
        "q.weight": ((4096, 4096), "F16"),
        "norm": ((4096,), "F16"),
        "scalar": ((), "F16"),
    }
    assert remark == "header only, without data"


def test_cut_off_data_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(packed({"a": entry()}) + b"12345")
    assert read_header(path)[1] == "only 5 of 12 bytes of data are there"
    path.write_bytes(packed({"a": entry()}) + bytes(12))
    assert read_header(path)[1] == ""


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "no safetensors file: 0 bytes, 8 are needed"),
    "huge length": (b"\xff" * 16, "give a header of 18446744073709551615 bytes"),
    "cut header": (struct.pack("<Q", 100) + b"{}", "the header is cut off: 2 of its 100 bytes"),
    "no JSON": (struct.pack("<Q", 4) + b"{abc", "the header is no JSON"),
    "no text": (struct.pack("<Q", 2) + b"\xff\xfe", "the header is no JSON"),
    "deep": (struct.pack("<Q", 200_000) + b"[" * 200_000, "the header is no JSON"),
    "a list": (packed([1]), "the header is no JSON object"),
    "twice": (struct.pack("<Q", 15) + b'{"a":{},"a":{}}', "a name occurs twice"),
    "no object": (packed({"a": 3}), "'a' is no object"),
    "no dtype": (packed({"a": entry(dtype=5)}), "'a' has no dtype"),
    "text shape": (packed({"a": entry(shape="23")}), "'a' has no shape of whole numbers"),
    "negative": (packed({"a": entry(shape=[-2, 3])}), "'a' has no shape of whole numbers"),
    "boolean": (packed({"a": entry(shape=[True, 3])}), "'a' has no shape of whole numbers"),
    "enormous": (packed({"a": entry(shape=[1 << 60])}), "'a' has no shape of whole numbers"),
    "many axes": (packed({"a": entry(shape=[1] * 99)}), "'a' has no shape of whole numbers"),
    "offsets": (packed({"a": entry(data_offsets=[12, 0])}), "'a' has no data_offsets (begin, end)"),
    "one offset": (packed({"a": entry(data_offsets=[12])}), "'a' has no data_offsets (begin, end)"),
    "size": (
        packed({"a": entry(data_offsets=[0, 10])}),
        "'a' is (2, 3) F16, which is 12 bytes, its data_offsets hold 10",
    ),
    "overlap": (
        packed({"a": entry(), "b": entry(data_offsets=[6, 18])}),
        "the data of 'a' and 'b' overlap",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused(name: str, tmp_path: Path) -> None:
    data, reason = HOSTILE[name]
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(SourceError) as caught:
        read_header(path)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(str(path))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F16", "F32", "F4", "NEW"]) | JSON,
        "shape": st.lists(st.integers(-1, 9), max_size=4) | JSON,
        "data_offsets": st.lists(st.integers(-1, 99), min_size=2, max_size=2) | JSON,
    },
)


def read_bytes(data: bytes) -> None:
    """Read `data` as a file: it is read or refused, and nothing else happens."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        path.write_bytes(data)
        try:
            tensors, _ = read_header(path)
        except SourceError:
            return
        for name, tensor in tensors.items():
            assert tensor.name == name
            assert all(type(n) is int and n >= 0 for n in tensor.shape)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text(max_size=6), ENTRIES | JSON, max_size=4))
def test_any_json_is_read_or_refused(header: dict[str, Any]) -> None:
    read_bytes(packed(header))


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=64), st.integers(0, 80))
def test_any_bytes_are_read_or_refused(data: bytes, length: int) -> None:
    read_bytes(data)
    read_bytes(struct.pack("<Q", length) + data)


def test_the_library_writes_what_is_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    import numpy as np

    path = tmp_path / "a.safetensors"
    numpy.save_file({"w": np.zeros((2, 3), np.float32), "b": np.zeros(5, np.int8)}, path)
    tensors, remark = read_header(path)
    assert {n: (t.shape, t.dtype) for n, t in tensors.items()} == {
        "w": ((2, 3), "F32"),
        "b": ((5,), "I8"),
    }
    assert remark == ""


def test_no_more_is_allocated_than_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", 99_000_000) + b"{}")
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match="the header is cut off"):
            read_header(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 << 20
