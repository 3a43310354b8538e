"""Checkpoints of a few kilobytes: real names and shapes, no data."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest

from mha_lint.dims.data import DimsReport
from mha_lint.dims.diagnose import diagnose

Shapes = Mapping[str, tuple[int, ...]]
_BYTES = {"F16": 2, "F32": 4, "I32": 4, "U8": 1, "I64": 8, "I8": 1, "BF16": 2}


def header(shapes: Shapes, dtypes: Mapping[str, str] | None = None) -> bytes:
    """Return a safetensors file that ends after its header."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, shape in shapes.items():
        dtype = (dtypes or {}).get(name, "F16")
        end = begin + prod(shape) * _BYTES[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


class Workshop:
    """Writes configs and checkpoints into one folder and diagnoses them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def config(self, name: str = "config.json", **values: Any) -> Path:
        path = self.folder / name
        path.write_text(json.dumps(values))
        return path

    def tensors(
        self,
        shapes: Shapes,
        name: str = "model.safetensors",
        dtypes: Mapping[str, str] | None = None,
    ) -> Path:
        path = self.folder / name
        path.write_bytes(header(shapes, dtypes))
        return path

    def diagnose(
        self, config: Mapping[str, Any] | None, shapes: Shapes | None, **more: Any
    ) -> DimsReport:
        paths = []
        if config is not None:
            paths.append(self.config(**config))
        if shapes is not None:
            paths.append(self.tensors(shapes, **more))
        return diagnose(paths)


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.fixture
def make_header() -> Callable[..., bytes]:
    return header
