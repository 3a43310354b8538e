"""The header of a ``.safetensors`` file: names, dtypes and shapes, without any tensor data.

The file begins with the header's length (8 bytes, little-endian) and the header (JSON). A file that
ends right after its header is read as well. What a hostile file may claim is checked.
"""

from __future__ import annotations

import json
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

from mha_lint.dims.data import SourceError, Tensor
from mha_lint.dims.files import require_file
from mha_lint.model.printable import printable

_LARGEST = 100_000_000
"""Bytes of a header: the limit of the format's own library."""
_MOST_AXES, _LONGEST_AXIS = 16, 1 << 48
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F16": 16,
    "BF16": 16, "F32": 32, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


def read_header(path: Path) -> tuple[dict[str, Tensor], str]:
    """Return the tensors by name, and a remark on the file ("" for none).

    Raises:
        SourceError: not a safetensors file, or one whose header contradicts itself.
    """
    try:
        size = require_file(path)
        with path.open("rb") as file:
            prefix = file.read(8)
            if len(prefix) < 8:
                raise SourceError(f"{path}: no safetensors file: {len(prefix)} bytes, 8 are needed")
            length = int.from_bytes(prefix, "little")
            if length > _LARGEST:
                raise SourceError(
                    f"{path}: no safetensors file: its first 8 bytes give a header of {length} bytes, "
                    f"the format allows {_LARGEST}"
                )
            raw = file.read(min(length, size))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(raw) < length:
        raise SourceError(
            f"{path}: the header is cut off: {len(raw)} of its {length} bytes are there"
        )
    tensors, end = _tensors(path, _json(path, raw))
    data = size - 8 - length
    if data <= 0 < end:
        return tensors, "header only, without data"
    return tensors, f"only {data} of {end} bytes of data are there" if data < end else ""


def _json(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: the header is no JSON ({_short(error)})") from error
    if not isinstance(header, dict):
        raise SourceError(f"{path}: the header is no JSON object")
    return header


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) or len({printable(name) for name in found}) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _short(error: Exception) -> str:
    return str(error).split("\n")[0][:120] or type(error).__name__


def _tensors(path: Path, header: dict[str, Any]) -> tuple[dict[str, Tensor], int]:
    tensors: dict[str, Tensor] = {}
    spans: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor, begin, end = _entry(path, name, entry)
        tensors[tensor.name] = tensor
        if end > begin:
            spans.append((begin, end, name))
    spans.sort()
    for (_, end, first), (begin, _, second) in pairwise(spans):
        if begin < end:
            raise SourceError(
                f"{path}: bad header: the data of {_quote(first)} and {_quote(second)} overlap"
            )
    return tensors, max((end for _, end, _ in spans), default=0)


def _entry(path: Path, name: str, entry: object) -> tuple[Tensor, int, int]:
    def bad(what: str) -> SourceError:
        return SourceError(f"{path}: bad header: {_quote(name)} {what}")

    if not isinstance(entry, dict):
        raise bad("is no object")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or not dtype.isascii() or len(dtype) > 32:
        raise bad("has no dtype")
    if not _is_sizes(shape) or len(shape) > _MOST_AXES:
        raise bad("has no shape of whole numbers")
    if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise bad("has no data_offsets (begin, end)")
    begin, end = offsets
    bits = _BITS.get(dtype)
    if bits is not None:
        needed = (prod(shape) * bits + 7) // 8
        if end - begin != needed:
            raise bad(
                f"is {tuple(shape)} {dtype}, which is {needed} bytes, its data_offsets hold {end - begin}"
            )
    return Tensor(printable(name), tuple(shape), dtype), begin, end


def _is_sizes(value: object) -> TypeGuard[list[int]]:
    """Tell whether `value` is a list of sizes."""
    return isinstance(value, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and 0 <= n < _LONGEST_AXIS for n in value
    )


def _quote(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:77] + "...")
