"""The lines of files that findings point at, whatever has become of them meanwhile."""

from __future__ import annotations

import linecache
import os
import stat

LARGEST = 32 << 20
"""Bytes of a file, above which nothing of it is shown."""


def lines_of(path: str) -> list[str]:
    """Return the lines of the file at `path` with their ends; none if it cannot be read as text.

    A pipe or a device, which may never end, is not read.
    """
    try:
        if path not in linecache.cache:  # what a notebook holds is there, and is no file
            found = os.stat(path)  # noqa: PTH116 - called for each finding
            if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
                return []
        return linecache.getlines(path)
    except Exception:  # a codec may raise anything
        return []


def line_of(path: str, number: int) -> str:
    """Return line `number` of `path`, "" if there is none."""
    lines = lines_of(path)
    return lines[number - 1] if 1 <= number <= len(lines) else ""
