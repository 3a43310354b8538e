"""The lines of a notebook's cell as its reader sees them, magics and all."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any


def cell_lines(path: str, number: int) -> list[str]:
    """Return the lines of cell `number` of the notebook at `path`; none if they cannot be read."""
    try:
        stat = Path(path).stat()
        cells = _cells(path, stat.st_mtime_ns, stat.st_size)
        return cells[number - 1].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []


@lru_cache(maxsize=4)
def _cells(path: str, _changed: int, _size: int) -> list[str]:
    """Return the source of every cell, of text cells too."""
    book: Any = json.loads(Path(path).read_bytes().decode("utf-8-sig"))
    if "worksheets" in book:  # nbformat 3
        cells = [cell for sheet in book["worksheets"] for cell in sheet["cells"]]
    else:
        cells = book["cells"]
    texts = [cell.get("source", cell.get("input", "")) for cell in cells]
    return ["".join(text) if isinstance(text, list) else text for text in texts]
